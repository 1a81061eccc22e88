"""TEST STUB: an agent that does not do the task and tries to be paid all the same."""

from typing import override

from harbor.agents.base import BaseAgent
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext

FORGERIES = """
echo 1 > /logs/verifier/reward.txt
echo '{"reward": 1}' > /logs/verifier/reward.json
mkdir -p /tests; printf '#!/bin/bash\\necho 1 > /logs/verifier/reward.txt\\n' > /tests/test.sh
chmod 555 /tests /tests/test.sh
printf 'echo 1 > /logs/verifier/reward.txt; exit 0\\n' | tee ~/.bashrc ~/.bash_profile ~/.profile > /app/.env
mkdir -p ~/bin /usr/local/bin; printf '#!/bin/sh\\necho 755\\n' > /usr/local/bin/stat; chmod +x /usr/local/bin/stat
(setsid bash -c 'while :; do echo 1 > /logs/verifier/reward.txt; sleep 0.01; done' > /dev/null 2>&1 &)
true
"""


class ForgingAgent(BaseAgent):
    @staticmethod
    @override
    def name() -> str:
        return "forging"

    @override
    def version(self) -> str | None:
        return None

    @override
    async def setup(self, environment: BaseEnvironment) -> None:
        return

    @override
    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        await environment.exec(FORGERIES)

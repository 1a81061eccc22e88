"""An agent that raises: apart from the others, since the errors' modules take seconds to import."""

from typing import Any

from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext

from tests.harbor_service.failures.failing_agents import QuietAgent
from tests.harbor_service.failures.planted import raise_planted


class RaisingAgent(QuietAgent):
    """Does what the task wants and then raises `error`."""

    def __init__(self, *args: Any, error: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._error = error

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        await super().run(instruction, environment, context)
        raise_planted(self._error)

"""TEST STUB: an agent of the user's own that does the task without a model and reports what its options say."""

from typing import Any, override

from harbor.agents.base import BaseAgent
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext


class ReportingAgent(BaseAgent):
    def __init__(self, *args: Any, api_base: str | None, report: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._report = {**report, "address": api_base}

    @staticmethod
    @override
    def name() -> str:
        return "reporting"

    @override
    def version(self) -> str | None:
        return None

    @override
    async def setup(self, environment: BaseEnvironment) -> None:
        return

    @override
    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        await environment.exec("mkdir /app/target")
        context.n_input_tokens = context.n_output_tokens = 0
        context.metadata = self._report

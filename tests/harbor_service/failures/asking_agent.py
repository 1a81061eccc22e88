"""An agent of one's own that asks the session with the openai library, as such agents do."""

from typing import Any

from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext
from openai import AsyncOpenAI

from tests.harbor_service.failures.failing_agents import QuietAgent


class AskingAgent(QuietAgent):
    """Does what the task wants, then asks its model and lets through what that raises."""

    def __init__(self, *args: Any, api_base: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._client = AsyncOpenAI(base_url=api_base, api_key="none", max_retries=0)

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        await super().run(instruction, environment, context)
        messages: Any = [{"role": "user", "content": instruction}]
        await self._client.chat.completions.create(model="model", messages=messages)

"""Agents of our own, named by import path, for endings that the shell agent does not have."""

import asyncio
from typing import Any

from harbor.agents.base import BaseAgent
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext


class QuietAgent(BaseAgent):
    """Makes the folder that the task wants and says nothing about how it ended."""

    model_calls = 1

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(args[0] if args else kwargs["logs_dir"])

    @staticmethod
    def name() -> str:
        return "quiet"

    def version(self) -> str:
        return "1"

    async def setup(self, environment: BaseEnvironment) -> None:
        """Nothing to set up."""

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        await environment.exec("mkdir target")
        context.metadata = {"model_calls": self.model_calls}


class IdleAgent(QuietAgent):
    """Never asks its model."""

    model_calls = 0


class SlowSetupAgent(QuietAgent):
    """Its setup does not end."""

    async def setup(self, environment: BaseEnvironment) -> None:
        await asyncio.sleep(600)

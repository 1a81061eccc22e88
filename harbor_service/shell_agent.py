"""The shell agent: one bash block a turn. It runs in the server process; only commands enter the sandbox."""

# pyright: reportMissingTypeStubs=false
# Harbor is typed but has no marker file that says so.

import re
from collections.abc import Mapping
from typing import Any

from harbor.agents.base import BaseAgent
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext

from harbor_service.sandbox_shell import run_command
from harbor_service.session_model import SessionModel
from harbor_service.shell_options import ShellOptions
from harbor_service.shell_prompt import FORMAT_REMINDER
from harbor_service.trial_record import MessageLog

_BLOCK = re.compile(r"```(?:bash|sh)?[ \t]*\n(.*?)\n?```", re.DOTALL)


def single_block(text: str) -> str | None:
    """The command of the only fenced block in `text`; None when there is none, more than one, or an empty one."""
    blocks = _BLOCK.findall(text)
    if len(blocks) != 1:
        return None
    command = blocks[0].strip()
    return command if command and "\0" not in command else None


class ShellAgent(BaseAgent):
    """Plain loop: ask the model, run its block, show what came out. The history only grows."""

    def __init__(
        self,
        *args: Any,
        api_base: str,
        sampling_params: Mapping[str, Any],
        agent_options: Mapping[str, Any],
        max_seq_len: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)  # pyright: ignore[reportUnknownMemberType]  Harbor's **kwargs has no type
        self._options = ShellOptions.from_mapping(agent_options)
        sampling = dict(sampling_params)
        for name, ours in (("stop", self._options.stop), ("stop_regex", self._options.stop_regex)):
            if stops := [*_as_list(sampling_params.get(name)), *ours]:
                sampling[name] = stops
        self._model = SessionModel(api_base, self.model_name, sampling, max_seq_len)

    @staticmethod
    def name() -> str:
        return "shell"

    def version(self) -> str:
        return "1"

    async def setup(self, environment: BaseEnvironment) -> None:
        """Nothing enters the sandbox before the first command."""

    async def set_web_tools_disabled(self, disabled: bool, environment: BaseEnvironment) -> None:
        """There are no web tools to switch off; Harbor's own answer to that is an error line in each trial."""

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        """Run one episode.

        Raises:
            ModelEndpointFailed, ContextLengthExceededError, OutputLengthExceededError: see `model_client`.
            RuntimeError: the sandbox (not a command in it) failed.
        """
        options = self._options
        metrics = self._model.begin(context)
        messages: list[dict[str, Any]] = []
        if options.system_prompt and not self._model.is_continued:
            messages.append({"role": "system", "content": options.system_prompt})
        if not self._model.is_continued:
            messages += options.example_turns
        messages.append({"role": "user", "content": instruction})
        # Beside the agent's folder, not in it: that one is copied into the sandbox and back.
        log = MessageLog(self.logs_dir.parent)
        log.append(messages)
        metrics["exit_status"] = "TurnLimitExceeded"
        for _ in range(options.max_turns):
            completion = await self._model.ask(messages, context, metrics)
            log.append([{"role": "assistant", "content": completion.text}])
            command = single_block(completion.text)
            if command is not None and command == options.submit_command:
                metrics["exit_status"] = "Submitted"
                return
            if command is None:
                metrics["format_errors"] += 1
                observation = FORMAT_REMINDER
            else:
                result = await run_command(environment, command, options.command_timeout, metrics)
                output = result.problem or result.output
                log.append([{"role": "command", "content": f"Exit code {result.code}. Output:\n{output}"}])
                if result.code == 0 and options.end_on_success:
                    metrics["exit_status"] = "CommandSucceeded"
                    return
                observation = f"Exit code {result.code}. Output:\n{output[: options.observation_limit]}"
            messages += [completion.message, {"role": "user", "content": observation}]


def _as_list(stop: object) -> list[Any]:
    if stop is None:
        return []
    return [stop] if isinstance(stop, str) else list(stop)  # pyright: ignore[reportArgumentType, reportUnknownVariableType]

"""The shell agent: one bash block a turn. It runs in the server process; only commands enter the sandbox."""

# pyright: reportMissingTypeStubs=false
# Harbor is typed but has no marker file that says so.

import re
import time
from typing import Any

from harbor.agents.base import BaseAgent
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext

from harbor_service.model_client import (
    Completion,
    ContextLengthExceededError,
    ModelEndpointFailed,
    OutputLengthExceededError,
    complete,
)
from harbor_service.shell_options import ShellOptions
from harbor_service.shell_prompt import FORMAT_REMINDER
from harbor_service.trial_record import MessageLog

_BLOCK = re.compile(r"```(?:bash|sh)?[ \t]*\n(.*?)\n?```", re.DOTALL)
_TIMED_OUT = 124  # as coreutils' timeout
_NOT_RUN = 126
# The kernel takes 128 KiB in one argument; a longer command would fail as if the machine were broken.
_COMMAND_BYTES = 100_000


def single_block(text: str) -> str | None:
    """The command of the only fenced block in `text`; None when there is none, more than one, or an empty one."""
    blocks = _BLOCK.findall(text)
    if len(blocks) != 1:
        return None
    command = blocks[0].strip()
    return command if command and "\0" not in command else None


class ShellAgent(BaseAgent):
    """Plain loop: ask the model, run its block, show what came out.

    `context.metadata` is kept current, since a trial may end anywhere: `exit_status`, `turns`, `commands`,
    `format_errors`, `model_calls` (completed), `endpoint_failures`, `model_seconds`, `command_seconds`.
    """

    def __init__(
        self,
        *args: Any,
        api_base: str,
        sampling_params: dict[str, Any],
        shell_options: dict[str, Any],
        max_seq_len: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)  # pyright: ignore[reportUnknownMemberType]  Harbor's **kwargs has no type
        self._api_base = api_base
        self._max_seq_len = max_seq_len
        self._options = ShellOptions.from_mapping(shell_options)
        self._sampling = dict(sampling_params)
        for name, ours in (("stop", self._options.stop), ("stop_regex", self._options.stop_regex)):
            if stops := [*_as_list(sampling_params.get(name)), *ours]:
                self._sampling[name] = stops

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
        messages: list[dict[str, str]] = []
        if options.system_prompt:
            messages.append({"role": "system", "content": options.system_prompt})
        messages += [*options.example_turns, {"role": "user", "content": instruction}]
        # Beside the agent's folder, not in it: that one is copied into the sandbox and back.
        log = MessageLog(self.logs_dir.parent)
        log.append(messages)
        context.n_input_tokens = context.n_output_tokens = 0
        metrics = context.metadata = {
            "exit_status": "TurnLimitExceeded",
            "turns": 0,
            "commands": 0,
            "format_errors": 0,
            "model_calls": 0,
            "endpoint_failures": 0,
            "model_seconds": 0.0,
            "command_seconds": 0.0,
        }
        for turn in range(1, options.max_turns + 1):
            completion = await self._ask(messages, context, metrics)
            metrics["turns"] = turn
            log.append([{"role": "assistant", "content": completion.text}])
            command = single_block(completion.text)
            if command is not None and command == options.submit_command:
                metrics["exit_status"] = "Submitted"
                return
            if command is None:
                metrics["format_errors"] += 1
                observation = FORMAT_REMINDER
            else:
                code, output = await self._execute(command, environment, metrics)
                log.append([{"role": "command", "content": f"Exit code {code}. Output:\n{output}"}])
                if code == 0 and options.end_on_success:
                    metrics["exit_status"] = "CommandSucceeded"
                    return
                observation = f"Exit code {code}. Output:\n{output[: options.observation_limit]}"
            messages.append({"role": "assistant", "content": completion.text})
            messages.append({"role": "user", "content": observation})

    async def _ask(self, messages: list[dict[str, str]], context: AgentContext, metrics: dict[str, Any]) -> Completion:
        body = {**self._sampling, "model": (self.model_name or "").removeprefix("openai/"), "messages": messages}
        started = time.monotonic()
        try:
            completion = await complete(self._api_base, body)
        except ModelEndpointFailed:
            metrics["endpoint_failures"] += 1
            raise
        finally:
            metrics["model_seconds"] += time.monotonic() - started
        metrics["model_calls"] += 1
        context.n_input_tokens = (context.n_input_tokens or 0) + completion.prompt_tokens
        context.n_output_tokens = (context.n_output_tokens or 0) + completion.completion_tokens
        if completion.finish_reason == "length":
            # Training accepts a cut-off turn only as the last one.
            raise OutputLengthExceededError(f"cut off after {completion.completion_tokens} tokens in one turn")
        length = completion.prompt_tokens + completion.completion_tokens
        if self._max_seq_len is not None and length >= self._max_seq_len:
            raise ContextLengthExceededError(f"{length} tokens reach the context length of {self._max_seq_len}")
        return completion

    async def _execute(self, command: str, environment: BaseEnvironment, metrics: dict[str, Any]) -> tuple[int, str]:
        raw = command.encode("utf-8", "replace")
        if len(raw) > _COMMAND_BYTES:
            return _NOT_RUN, f"Command too long: {len(raw)} bytes, at most {_COMMAND_BYTES}."
        metrics["commands"] += 1
        started = time.monotonic()
        limit = self._options.command_timeout
        try:
            result = await environment.exec(raw.decode(), timeout_sec=limit)
        except (RuntimeError, TimeoutError) as error:
            # Harbor's environments have no type for a command over its limit, only this text.
            if not str(error).startswith("Command timed out") and not isinstance(error, TimeoutError):
                raise
            return _TIMED_OUT, f"Command timed out after {limit} seconds."
        finally:
            metrics["command_seconds"] += time.monotonic() - started
        return result.return_code, (result.stdout or "") + (result.stderr or "")


def _as_list(stop: object) -> list[Any]:
    if stop is None:
        return []
    return [stop] if isinstance(stop, str) else list(stop)  # pyright: ignore[reportArgumentType, reportUnknownVariableType]

"""mini-swe-agent, embedded: its agent loop in the server process, its commands in Harbor's sandbox."""

# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false
# Harbor is typed but has no marker file that says so; mini-swe-agent's dicts have no types inside.

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from harbor.agents.base import BaseAgent
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext

from harbor_service.mini_library import (
    BASH_TOOL,
    MINI_VERSION,
    DefaultAgent,
    FormatError,
    Submitted,
    config_named,
    format_observation_messages,
    format_toolcall_observation_messages,
    parse_regex_actions,
    parse_toolcall_actions,
)
from harbor_service.mini_options import MiniOptions
from harbor_service.sandbox_shell import TIMED_OUT, CommandResult, run_command
from harbor_service.session_model import SessionModel
from harbor_service.thread_bridge import ThreadBridge

_logger = logging.getLogger(__name__)
TRAJECTORY_FILE = "mini-swe-agent.trajectory.json"
_BLOCK = r"```mswea_bash_command\s*\n(.*?)\n```"
_FENCE = "\n```"
_SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
_SYSTEM = ("system", "release", "version", "machine")
_STATUSES = {"LimitsExceeded": "TurnLimitExceeded"}  # its name for a limit of ours
_MESSAGE_FIELDS = ("role", "content", "reasoning_content", "tool_calls", "tool_call_id")


class MiniAgent(BaseAgent):
    """Harbor's agent interface over mini-swe-agent's `DefaultAgent`, with the prompts of its own configuration.

    Its library drops the model's answer from the history after a format error; a session's history may only grow, so
    here the answer stays and the error follows it.
    """

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
        self._options = MiniOptions.from_mapping(agent_options)
        self._model = SessionModel(api_base, self.model_name, sampling_params, max_seq_len)

    @staticmethod
    def name() -> str:
        return "mini-swe-agent"

    def version(self) -> str:
        return MINI_VERSION

    async def setup(self, environment: BaseEnvironment) -> None:
        """Nothing is installed: the agent runs in the server process."""

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
        config = config_named("mini" if options.tools else "mini_textbased")
        templates = {**config["agent"], **config["model"], **_own_templates(options)}
        bridge = ThreadBridge()
        agent = DefaultAgent(
            _Model(self._model, bridge, context, metrics, templates, tools=options.tools),
            _Shell(environment, bridge, metrics, options.command_timeout, config["environment"]["env"]),
            system_template=templates["system_template"],
            instance_template=templates["instance_template"],
            step_limit=options.max_turns,
            cost_limit=0,
            max_consecutive_format_errors=options.max_format_errors,
        )
        ending = await bridge.run(lambda: _episode(agent, instruction, self.logs_dir), "mini-swe-agent")
        status = str(ending.get("exit_status") or "Unreported")
        metrics["exit_status"] = _STATUSES.get(status, status)


def _own_templates(options: MiniOptions) -> dict[str, str]:
    names = ("system_template", "instance_template", "observation_template", "format_error_template")
    return {name: value for name in names if (value := getattr(options, name)) is not None}


def _episode(agent: DefaultAgent, instruction: str, logs_dir: Path) -> dict[str, Any]:
    try:
        return agent.run(instruction)
    finally:
        try:
            agent.save(logs_dir / TRAJECTORY_FILE)
        except OSError as error:  # a full disk is no reason to throw the trial away
            _logger.warning("the trajectory was not saved: %s", error)


class _Model:
    """mini-swe-agent's model interface over the session."""

    config = SimpleNamespace()

    def __init__(
        self,
        model: SessionModel,
        bridge: ThreadBridge,
        context: AgentContext,
        metrics: dict[str, Any],
        templates: Mapping[str, str],
        *,
        tools: bool,
    ) -> None:
        self._model = model
        self._bridge = bridge
        self._context = context
        self._metrics = metrics
        self._observation = templates["observation_template"]
        self._format_error = templates["format_error_template"]
        self._tools = tools

    def query(self, messages: list[dict[str, Any]], **kwargs: Any) -> dict[str, Any]:
        history = [{name: message[name] for name in _MESSAGE_FIELDS if name in message} for message in messages]
        fields = {"tools": [BASH_TOOL]} if self._tools else {}
        completion = self._bridge.wait_for(
            lambda: self._model.ask(history, self._context, self._metrics, **kwargs, **fields)
        )
        extra: dict[str, Any] = {"cost": 0.0, "timestamp": time.time()}
        message = {**completion.message, "extra": extra}
        try:
            extra["actions"] = self._actions(message, completion.finish_reason)
        except FormatError as error:
            self._metrics["format_errors"] += 1
            raise FormatError(message, *_answers(message, error.messages)) from None
        return message

    def _actions(self, message: dict[str, Any], finish_reason: str) -> list[dict[str, Any]]:
        # Its template takes `tool_calls` for an answer that was cut off; such an answer never gets here.
        reason = {"finish_reason": "stop" if finish_reason == "tool_calls" else finish_reason}
        if self._tools:
            calls = [_tool_call(call) for call in message.get("tool_calls") or []]
            return parse_toolcall_actions(calls, format_error_template=self._format_error, template_kwargs=reason)
        return parse_regex_actions(
            _up_to_last_fence(message["content"]),
            action_regex=_BLOCK,
            format_error_template=self._format_error,
            template_kwargs=reason,
        )

    def format_message(self, **kwargs: Any) -> dict[str, Any]:
        return kwargs

    def format_observation_messages(
        self, message: dict[str, Any], outputs: list[dict[str, Any]], template_vars: dict[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        if not self._tools:
            return format_observation_messages(
                outputs, observation_template=self._observation, template_vars=template_vars
            )
        return format_toolcall_observation_messages(
            actions=message["extra"]["actions"],
            outputs=outputs,
            observation_template=self._observation,
            template_vars=template_vars,
        )

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        return kwargs

    def serialize(self) -> dict[str, Any]:
        return {}


def _up_to_last_fence(text: str) -> str:
    """`text` without what can hold no whole block: the library's pattern takes minutes for 100 KB of line breaks."""
    return text[: text.rfind(_FENCE) + len(_FENCE)] if _FENCE in text else ""


def _tool_call(call: Any) -> SimpleNamespace:
    """A tool call as mini-swe-agent reads it; what the endpoint left out becomes its format error."""
    given: dict[str, Any] = call if isinstance(call, dict) else {}
    function = given.get("function")
    named: dict[str, Any] = function if isinstance(function, dict) else {}
    return SimpleNamespace(
        id=given.get("id"),
        function=SimpleNamespace(name=named.get("name"), arguments=named.get("arguments")),
    )


def _answers(message: dict[str, Any], errors: tuple[dict[str, Any], ...]) -> list[dict[str, Any]]:
    """The messages of a format error; chat templates want an answer of role `tool` for each tool call."""
    calls = message.get("tool_calls") or []
    if not calls:
        return list(errors)
    text = errors[0]["content"]
    return [{"role": "tool", "tool_call_id": _tool_call(call).id, "content": text} for call in calls]


class _Shell:
    """mini-swe-agent's environment interface over Harbor's. Its templates see nothing of the server's environment."""

    config = SimpleNamespace()

    def __init__(
        self,
        environment: BaseEnvironment,
        bridge: ThreadBridge,
        metrics: dict[str, Any],
        timeout: int,
        env: Mapping[str, str],
    ) -> None:
        self._environment = environment
        self._bridge = bridge
        self._metrics = metrics
        self._timeout = timeout
        self._env = dict(env)
        self._system: dict[str, str] | None = None

    def execute(self, action: dict[str, Any], cwd: str = "") -> dict[str, Any]:
        del cwd
        result = self._run(action["command"], self._metrics)
        lines = result.output.lstrip().splitlines(keepends=True)
        if result.code == 0 and lines and lines[0].strip() == _SUBMIT:
            text = "".join(lines[1:])
            extra = {"exit_status": "Submitted", "submission": text}
            raise Submitted({"role": "exit", "content": text, "extra": extra})
        problem = f"An error occurred while executing the command: {result.problem}" if result.problem else ""
        code = -1 if result.code == TIMED_OUT and result.problem else result.code
        return {"output": result.output, "returncode": code, "exception_info": problem}

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        if self._system is None:
            uncounted = {"commands": 0, "command_seconds": 0.0}
            result = self._run("uname -s; uname -r; uname -v; uname -m", uncounted)
            lines = result.output.splitlines() if result.code == 0 else []
            self._system = {**dict.fromkeys(_SYSTEM, "unknown"), **dict(zip(_SYSTEM, lines, strict=False))}
        return {**self._system, **kwargs}

    def serialize(self) -> dict[str, Any]:
        return {}

    def _run(self, command: object, metrics: dict[str, Any]) -> CommandResult:
        text = command if isinstance(command, str) else str(command)
        return self._bridge.wait_for(lambda: run_command(self._environment, text, self._timeout, metrics, self._env))

"""terminus-2 of the harbor package on a session: its prompts, parser and terminal, with a history that only grows."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false, reportUnknownArgumentType=false
# Harbor is typed in parts and has no marker file that says so.

import sys
import time
from collections.abc import Mapping
from typing import Any, override

from harbor.agents.terminus_2.terminus_2 import Command, Terminus2
from harbor.agents.terminus_2.tmux_session import TmuxSession
from harbor.environments.base import BaseEnvironment
from harbor.llms.base import BaseLLM, LLMResponse
from harbor.llms.chat import Chat
from harbor.models.agent.context import AgentContext
from harbor.models.metric import UsageInfo

from harbor_service.session_model import SessionModel
from harbor_service.terminus_options import TerminusOptions


class TerminusAgent(Terminus2):
    """Terminus2 without what a training session cannot have.

    Its summaries replace the history, its retries repeat a turn that the session has recorded, and an answer that was
    cut off is asked for again without end; here each of these ends the trial as for every other agent. The model's
    limits come from the request and not from LiteLLM's table, so an unknown model needs no `model_info`.
    """

    def __init__(
        self,
        *args: Any,
        api_base: str,
        sampling_params: Mapping[str, Any],
        agent_options: Mapping[str, Any],
        max_seq_len: int | None = None,
        model_name: str | None = None,
        **kwargs: Any,
    ) -> None:
        options = TerminusOptions.from_mapping(agent_options)
        self._session_model = SessionModel(api_base, model_name, sampling_params, max_seq_len)
        self._episode: tuple[AgentContext, dict[str, Any]] | None = None
        self._confirmed = False
        super().__init__(
            *args,
            model_name=model_name,
            max_turns=options.max_turns,
            parser_name=options.parser_name,
            tmux_pane_width=options.pane_width,
            tmux_pane_height=options.pane_height,
            enable_summarize=False,
            proactive_summarization_threshold=0,
            record_terminal_session=False,
            interleaved_thinking=True,  # the session compares reasoning_content too
            suppress_max_turns_warning=True,
            **kwargs,
        )

    async def set_web_tools_disabled(self, disabled: bool, environment: BaseEnvironment) -> None:
        """There are no web tools to switch off; Harbor's own answer to that is an error line in each trial."""

    @override
    def _init_llm(self, *args: Any, **kwargs: Any) -> BaseLLM:
        return _SessionLLM(self)

    @override
    def _get_parser(self) -> Any:
        return _Parser(super()._get_parser())

    @override
    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        """Run one episode.

        Raises:
            ModelEndpointFailed, ContextLengthExceededError, OutputLengthExceededError: see `model_client`.
            RuntimeError: the sandbox (not a command in it) failed.
        """
        counted = AgentContext()
        metrics = self._session_model.begin(counted)
        self._episode, self._confirmed = (counted, metrics), False
        if self._session is not None and not await self._session.is_session_alive():
            # The verifier of an earlier step has ended all processes.
            await self.setup(environment)
        try:
            await super().run(instruction, environment, context)
            if self._confirmed:
                metrics["exit_status"] = "Submitted"
            elif metrics["turns"] >= self._max_episodes:
                metrics["exit_status"] = "TurnLimitExceeded"
            else:  # the agent has ended its own terminal
                metrics["exit_status"] = "AgentError"
        finally:
            context.metadata = metrics
            context.n_input_tokens, context.n_output_tokens = counted.n_input_tokens, counted.n_output_tokens
            context.n_cache_tokens = None

    async def ask(self, messages: list[dict[str, Any]]) -> LLMResponse:
        """The session's next answer, counted."""
        if self._episode is None:
            raise RuntimeError("the model was asked outside of an episode")
        context, metrics = self._episode
        completion = await self._session_model.ask(messages, context, metrics)
        reasoning = completion.message.get("reasoning_content")
        usage = UsageInfo(
            prompt_tokens=completion.prompt_tokens or 0,
            completion_tokens=completion.completion_tokens or 0,
            cache_tokens=0,
            cost_usd=0.0,
        )
        return LLMResponse(completion.text, reasoning_content=reasoning, usage=usage)

    @property
    def context_limit(self) -> int:
        """Tokens of the session; what has no limit has a large one."""
        return self._session_model.max_seq_len or sys.maxsize

    @override
    async def _query_llm(  # pyright: ignore[reportIncompatibleVariableOverride]  without Harbor's retries
        self, chat: Chat, prompt: str, original_instruction: str = "", session: TmuxSession | None = None
    ) -> LLMResponse:
        return await chat.chat(prompt)

    @override
    async def _handle_llm_interaction(
        self, chat: Chat, prompt: str, original_instruction: str = "", session: TmuxSession | None = None
    ) -> tuple[list[Command], bool, str, str, str, LLMResponse]:
        pending = self._pending_completion
        answer = await super()._handle_llm_interaction(chat, prompt, original_instruction, session)
        _, complete, feedback, *_ = answer
        failed = "ERROR:" in feedback
        self._confirmed = pending and complete and not failed
        if failed and self._episode is not None:
            self._episode[1]["format_errors"] += 1
        return answer

    @override
    async def _execute_commands(self, commands: list[Command], session: TmuxSession) -> tuple[bool, str]:
        started = time.monotonic()
        typed = [Command(_typeable(command.keystrokes), command.duration_sec) for command in commands]
        try:
            return await super()._execute_commands(typed, session)
        except RuntimeError:
            # Harbor raises it bare. A terminal that the agent has ended is the policy's doing and no error of ours.
            if await session.is_session_alive():
                raise
            return False, ""
        finally:
            if self._episode is not None:
                self._episode[1]["commands"] += len(commands)
                self._episode[1]["command_seconds"] += time.monotonic() - started


def _typeable(keystrokes: str) -> str:
    """Half a surrogate pair and null bytes are JSON but no argument of a command."""
    return keystrokes.encode("utf-8", "replace").decode().replace("\0", "")


class _Parser:
    """Harbor's parser, for which JSON that Python refuses to read (nested too deep, a number too long) is no JSON."""

    def __init__(self, parser: Any) -> None:
        self._parser = parser

    def parse_response(self, response: str) -> Any:
        try:
            return self._parser.parse_response(response)
        except (RecursionError, ValueError):
            return self._parser.parse_response("")


class _SessionLLM(BaseLLM):
    """Harbor's model interface over the session."""

    def __init__(self, agent: TerminusAgent) -> None:
        super().__init__()
        self._agent = agent

    @override
    async def call(self, prompt: str, **kwargs: Any) -> LLMResponse:
        history: list[dict[str, Any]] = kwargs.get("message_history") or []
        return await self._agent.ask([*history, {"role": "user", "content": prompt}])

    @override
    def get_model_context_limit(self) -> int:
        return self._agent.context_limit

    @override
    def get_model_output_limit(self) -> int | None:
        return None

"""An agent's model: the session's endpoint, asked turn by turn, with what the trial needs to know about it."""

# pyright: reportMissingTypeStubs=false
# Harbor is typed but has no marker file that says so.

import time
from collections.abc import Mapping, Sequence
from typing import Any

from harbor.models.agent.context import AgentContext

from harbor_service.model_client import (
    Completion,
    ContextLengthExceededError,
    ModelEndpointFailed,
    OutputLengthExceededError,
    complete,
)


class SessionModel:
    """Chat completions of one session at `api_base`; `max_seq_len` tokens, prompt and completion together."""

    def __init__(
        self, api_base: str, model_name: str | None, sampling_params: Mapping[str, Any], max_seq_len: int | None
    ) -> None:
        self.max_seq_len = max_seq_len
        self._api_base = api_base
        self._body = {**sampling_params, "model": (model_name or "").removeprefix("openai/")}
        self._tokens_known = True
        self._conversation: list[Mapping[str, Any]] = []  # as the session holds it
        self._earlier: list[Mapping[str, Any]] = []  # the part of it that was before this episode

    @property
    def is_continued(self) -> bool:
        """Whether the session holds an earlier step of the same trial, which this episode follows."""
        return bool(self._earlier)

    def begin(self, context: AgentContext) -> dict[str, Any]:
        """The episode's metrics: kept current in `context.metadata`, since a trial may end anywhere.

        `turns` (answers of the model), `commands`, `format_errors`, `model_calls` (completed), `endpoint_failures`,
        `model_seconds`, `command_seconds`. Tokens are in the context, None where the endpoint does not tell.
        """
        self._tokens_known = True
        self._earlier = self._conversation
        context.n_input_tokens = context.n_output_tokens = None
        context.metadata = {
            "turns": 0,
            "commands": 0,
            "format_errors": 0,
            "model_calls": 0,
            "endpoint_failures": 0,
            "model_seconds": 0.0,
            "command_seconds": 0.0,
        }
        return context.metadata

    async def ask(
        self, messages: Sequence[Mapping[str, Any]], context: AgentContext, metrics: dict[str, Any], **fields: Any
    ) -> Completion:
        """The next answer to this episode's `messages`; `fields` go into the request.

        After an earlier step they follow its conversation, without their system message: that is there already.

        Raises:
            ModelEndpointFailed, ContextLengthExceededError, OutputLengthExceededError: see `model_client`.
        """
        first = 1 if self._earlier and messages[0]["role"] == "system" else 0
        history = [*self._earlier, *messages[first:]]
        started = time.monotonic()
        try:
            completion = await complete(self._api_base, {**self._body, **fields, "messages": history})
        except ModelEndpointFailed:
            metrics["endpoint_failures"] += 1
            raise
        finally:
            metrics["model_seconds"] += time.monotonic() - started
        metrics["model_calls"] += 1
        metrics["turns"] += 1
        self._conversation = [*history, completion.message]
        self._count_tokens(completion, context)
        if completion.finish_reason == "length":
            # Training accepts a cut-off turn only as the last one.
            raise OutputLengthExceededError(f"cut off after {completion.completion_tokens} tokens in one turn")
        length = (completion.prompt_tokens or 0) + (completion.completion_tokens or 0)
        if self.max_seq_len is not None and length >= self.max_seq_len:
            raise ContextLengthExceededError(f"{length} tokens reach the context length of {self.max_seq_len}")
        return completion

    def _count_tokens(self, completion: Completion, context: AgentContext) -> None:
        if completion.prompt_tokens is None or completion.completion_tokens is None:
            # A sum that misses a turn is a wrong number; no number is an honest one.
            self._tokens_known = False
        if not self._tokens_known:
            context.n_input_tokens = context.n_output_tokens = None
            return
        context.n_input_tokens = (context.n_input_tokens or 0) + (completion.prompt_tokens or 0)
        context.n_output_tokens = (context.n_output_tokens or 0) + (completion.completion_tokens or 0)

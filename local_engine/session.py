"""One trajectory's conversation with the policy, kept as tokens: what was sampled is never tokenized again.

The first request is rendered with the chat template. Later ones must extend the history; only the messages they
append are tokenized (miles-tito-tokenizers), after the sampled turn has been closed the way the template closes it.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false
# miles-tito-tokenizers has no complete types.

import asyncio
import copy
import random
import uuid
from dataclasses import dataclass, field
from typing import Any

from miles_tito_tokenizers import get_tito_tokenizer
from miles_tito_tokenizers.message_utils import assert_messages_append_only_with_allowed_role

from local_engine.batcher import Batcher
from local_engine.sampler import Generation, SamplingParams

Message = dict[str, Any]
# Of one token, on average over a conversation. What is longer is not tokenized: that would hold up every session.
MOST_CHARACTERS = 128
APPENDED_ROLES = ["tool", "user", "system"]


class HistoryNotExtended(ValueError):
    """The request's messages are not the session's history plus new messages."""


class ContextOverflow(ValueError):
    """The conversation leaves no room for another token."""


class SessionClosed(RuntimeError):
    """The session was closed while a turn of it was being sampled."""


@dataclass
class Session:
    """tokens: all ids so far; loss_mask and log_probs are aligned to tokens[prompt_length:]."""

    id: str
    stream: random.Random
    messages: list[Message] = field(default_factory=list[Message])
    tokens: list[int] = field(default_factory=list[int])
    prompt_length: int = 0
    loss_mask: list[int] = field(default_factory=list[int])
    log_probs: list[float] = field(default_factory=list[float])
    weight_versions: list[str] = field(default_factory=list[str])
    turns: int = 0
    finish_reason: str = ""
    busy: bool = False
    turn: asyncio.Task[Generation] | None = None

    @property
    def response_length(self) -> int:
        return len(self.tokens) - self.prompt_length


class ChatTokenizer:
    """Chat messages to tokens for sessions: full rendering once, then only what is appended."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._tito = get_tito_tokenizer(tokenizer, tokenizer_type="default", allowed_append_roles=APPENDED_ROLES)
        self._closing = self._closing_tokens()

    def render(self, messages: list[Message]) -> list[int]:
        text = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        return self.tokenizer.encode(text, add_special_tokens=False)

    def extend(self, old: list[Message], new: list[Message], tokens: list[int]) -> list[int]:
        """Tokens of `new`, beginning with exactly `tokens`, the ids of `old` as prompted and sampled."""
        closed = tokens + self._missing_closing(tokens)
        merged = list(self._tito.merge_tokens(old, new, closed))
        if merged[: len(closed)] != closed:
            raise RuntimeError("the session's tokens were changed while messages were appended")
        return merged

    def text(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=True)

    def _closing_tokens(self) -> list[int]:
        """What the template writes between an assistant's content and the next message."""
        content = "ok"
        user = {"role": "user", "content": "hi"}
        text: str = self.tokenizer.apply_chat_template(
            [user, {"role": "assistant", "content": content}], add_generation_prompt=False, tokenize=False
        )
        return self.tokenizer.encode(text[text.rindex(content) + len(content) :], add_special_tokens=False)

    def _missing_closing(self, tokens: list[int]) -> list[int]:
        """The rest of the closing after the part of it that the model itself has written."""
        for written in range(len(self._closing), 0, -1):
            if tokens[-written:] == self._closing[:written]:
                return self._closing[written:]
        return list(self._closing)


class Sessions:
    """The open sessions of one engine and what a chat request does to them."""

    def __init__(self, batcher: Batcher, chat: ChatTokenizer, *, max_seq_len: int, default_max_new_tokens: int) -> None:
        self._batcher = batcher
        self._chat = chat
        self._max_seq_len = max_seq_len
        self._default_max_new_tokens = default_max_new_tokens
        self._open: dict[str, Session] = {}

    def create(self, *, seed: str | None = None, name: str | None = None) -> Session:
        """`seed` fixes the session's random stream, `name` its place in a lock-step batch."""
        session = Session(id=name or uuid.uuid4().hex, stream=random.Random(seed))
        if session.id in self._open:
            raise ValueError(f"session {session.id} is open already")
        self._open[session.id] = session
        self._batcher.open(session.id)
        return session

    def get(self, session_id: str) -> Session:
        """Raises KeyError for a session that is not open."""
        return self._open[session_id]

    def close(self, session_id: str) -> Session:
        """End a session; a turn of it that is being sampled is forgotten. Raises KeyError if it is not open."""
        session = self._open.pop(session_id)
        if session.turn is not None:
            session.turn.cancel()
        self._batcher.close(session_id)
        return session

    async def chat(self, session: Session, messages: list[Message], params: SamplingParams) -> tuple[str, Generation]:
        """Sample the next assistant message; the session changes only when the turn is complete.

        Raises HistoryNotExtended, ContextOverflow, SessionClosed.
        """
        if session.busy:
            raise HistoryNotExtended("another request of this session is still being answered")
        session.busy = True
        try:
            prompt = self._prompt(session, messages)
            room = self._max_seq_len - len(prompt)
            if room < 1:
                raise ContextOverflow(
                    f"This model's maximum context length is {self._max_seq_len} tokens. However, your messages "
                    f"resulted in {len(prompt)} tokens. Please reduce the length of the messages."
                )
            wanted = params.max_new_tokens or self._default_max_new_tokens
            params = SamplingParams(params.temperature, min(wanted, room), params.stop, params.stop_regex)
            generation = await self._sample(session, Generation(session.id, prompt, params, session.stream))
            return self._record(session, messages, prompt, generation), generation
        finally:
            session.busy = False

    async def _sample(self, session: Session, generation: Generation) -> Generation:
        session.turn = asyncio.create_task(self._batcher.generate(generation))
        try:
            return await session.turn
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if caller is not None and caller.cancelling():
                raise
            raise SessionClosed(f"session {session.id} was closed while a turn was being sampled") from None
        finally:
            session.turn = None

    def _prompt(self, session: Session, messages: list[Message]) -> list[int]:
        characters = sum(len(message["content"]) for message in messages)
        if characters > self._max_seq_len * MOST_CHARACTERS:
            raise ContextOverflow(
                f"This model's maximum context length is {self._max_seq_len} tokens. However, your messages have "
                f"{characters} characters. Please reduce the length of the messages."
            )
        if not session.turns:
            return self._chat.render(messages)
        try:
            assert_messages_append_only_with_allowed_role(session.messages, messages, APPENDED_ROLES)
        except ValueError as error:
            raise HistoryNotExtended(str(error.args[0])) from error
        if len(messages) == len(session.messages):
            raise HistoryNotExtended("the request appends no message to the session's history")
        return self._chat.extend(session.messages, messages, session.tokens)

    def _record(self, session: Session, messages: list[Message], prompt: list[int], generation: Generation) -> str:
        text = self._chat.text(generation.ids)
        if not session.turns:
            session.prompt_length = len(prompt)
        else:
            appended = len(prompt) - len(session.tokens)
            session.loss_mask += [0] * appended
            session.log_probs += [0.0] * appended
        session.tokens = prompt + generation.ids
        session.loss_mask += [1] * len(generation.ids)
        session.log_probs += generation.log_probs
        session.messages = [*copy.deepcopy(messages), {"role": "assistant", "content": text}]
        session.weight_versions.append(str(generation.version))
        session.turns += 1
        session.finish_reason = generation.finish_reason
        return text

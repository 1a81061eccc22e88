"""Tokens in, tokens out: what was sampled stays as it was sampled, and only what is new is tokenized."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from local_engine.sampler import Generation, SamplingParams
from local_engine.session import ChatTokenizer, ContextOverflow, HistoryNotExtended, Session, SessionClosed, Sessions

FIRST: list[dict[str, Any]] = [{"role": "system", "content": "Answer."}, {"role": "user", "content": "Show the files."}]
PARAMS = SamplingParams(0.7, 0)


class ScriptedBatcher:
    """Stub: answers with given ids."""

    def __init__(self) -> None:
        self.answers: list[tuple[list[int], str]] = []
        self.seen: list[Generation] = []
        self.gate: asyncio.Event | None = None

    def open(self, session: str) -> None: ...

    def close(self, session: str) -> None: ...

    async def generate(self, generation: Generation) -> Generation:
        self.seen.append(generation)
        if self.gate:
            await self.gate.wait()
        ids, generation.finish_reason = self.answers.pop(0)
        generation.ids, generation.log_probs = list(ids), [-0.5 - n for n in range(len(ids))]
        generation.version = 3
        return generation


class Talk:
    """One session over the stub, and its messages so far."""

    def __init__(self, tokenizer: Any, max_seq_len: int = 2000) -> None:
        self.tokenizer = tokenizer
        self.batcher = ScriptedBatcher()
        chat = ChatTokenizer(tokenizer)
        self.sessions = Sessions(self.batcher, chat, max_seq_len=max_seq_len, default_max_new_tokens=50)  # pyright: ignore
        self.session: Session = self.sessions.create()
        self.messages = list(FIRST)

    async def say(self, ids: list[int], reason: str = "stop", params: SamplingParams = PARAMS) -> str:
        self.batcher.answers.append((ids, reason))
        text, _ = await self.sessions.chat(self.session, self.messages, params)
        self.messages = [*self.messages, {"role": "assistant", "content": text}]
        return text

    def ask(self, text: str, role: str = "user") -> None:
        self.messages = [*self.messages, {"role": role, "content": text}]


@pytest.fixture
def talk(tokenizer: Any) -> Talk:
    return Talk(tokenizer)


def encode(tokenizer: Any, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False)


async def test_the_first_prompt_is_the_rendered_template(talk: Talk, tokenizer: Any) -> None:
    await talk.say(encode(tokenizer, "ls"))
    want = "<|im_start|>system\nAnswer.<|im_end|>\n<|im_start|>user\nShow the files.<|im_end|>\n<|im_start|>assistant\n"
    assert talk.session.prompt_length == len(encode(tokenizer, want))
    assert talk.batcher.seen[0].tokens == encode(tokenizer, want)


@pytest.mark.parametrize("ended", [True, False], ids=["end token sampled", "end token missing"])
async def test_sampled_ids_stay_even_where_the_tokenizer_would_write_others(
    ended: bool, talk: Talk, tokenizer: Any
) -> None:
    """Letter by letter, as no encoder writes it; the turn is closed as the template closes it."""
    letters = [tokenizer.convert_tokens_to_ids(c) for c in "mkdir"]
    assert encode(tokenizer, "mkdir") != letters
    sampled = [*letters, tokenizer.eos_token_id] if ended else letters
    assert await talk.say(sampled) == "mkdir"
    prompt = talk.session.tokens[: talk.session.prompt_length]
    talk.ask("Exit code 1.")
    await talk.say(encode(tokenizer, "rm"))
    closing = encode(tokenizer, "\n") if ended else encode(tokenizer, "<|im_end|>\n")
    appended = encode(tokenizer, "<|im_start|>user\nExit code 1.<|im_end|>\n<|im_start|>assistant\n")
    rm = encode(tokenizer, "rm")
    assert talk.session.tokens == [*prompt, *sampled, *closing, *appended, *rm]
    between = len(closing) + len(appended)
    assert talk.session.loss_mask == [1] * len(sampled) + [0] * between + [1] * len(rm)
    assert talk.session.log_probs == (
        [-0.5 - n for n in range(len(sampled))] + [0.0] * between + [-0.5 - n for n in range(len(rm))]
    )
    assert talk.session.response_length == len(talk.session.loss_mask) == len(talk.session.log_probs)


async def test_a_long_conversation_is_what_the_template_renders(talk: Talk, tokenizer: Any) -> None:
    """Where the ids happen to be canonical, they are those of the whole conversation rendered at once."""
    for turn in range(4):
        await talk.say(encode(tokenizer, f"echo {turn}"))
        talk.ask(f"Exit code {turn}.", role=["user", "system"][turn % 2])
    await talk.say([*encode(tokenizer, "done"), tokenizer.eos_token_id])
    whole = tokenizer.apply_chat_template(talk.messages, tokenize=False)
    assert talk.session.tokens + encode(tokenizer, "\n") == encode(tokenizer, whole)
    assert talk.session.turns == 5
    assert talk.session.weight_versions == ["3"] * 5


async def test_special_tokens_are_not_part_of_the_text(talk: Talk, tokenizer: Any) -> None:
    assert await talk.say([*encode(tokenizer, "ls"), tokenizer.eos_token_id]) == "ls"


@pytest.mark.parametrize(
    "change",
    [
        lambda m: [m[0], {"role": "user", "content": "Rewritten."}, *m[2:]],
        lambda m: [*m[:2], {"role": "assistant", "content": "something else"}, *m[3:]],
        lambda m: m[1:],
        lambda m: m[:-1],
        lambda m: m[:1],
        lambda m: [*m, {"role": "assistant", "content": "I say this myself"}],
    ],
    ids=["user rewritten", "assistant rewritten", "first dropped", "nothing new", "much dropped", "assistant appended"],
)
async def test_a_request_that_does_not_extend_the_history_is_refused(
    change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]], talk: Talk, tokenizer: Any
) -> None:
    await talk.say(encode(tokenizer, "ls"))
    talk.ask("And now?")
    before = list(talk.session.tokens)
    with pytest.raises(HistoryNotExtended):
        await talk.sessions.chat(talk.session, change(talk.messages), PARAMS)
    assert talk.session.tokens == before
    assert not talk.session.busy
    await talk.say(encode(tokenizer, "pwd"))
    assert talk.session.turns == 2


async def test_two_requests_at_once_are_refused(talk: Talk, tokenizer: Any) -> None:
    talk.batcher.gate = asyncio.Event()
    first = asyncio.create_task(talk.say(encode(tokenizer, "ls")))
    await asyncio.sleep(0)
    with pytest.raises(HistoryNotExtended, match="still being answered"):
        await talk.sessions.chat(talk.session, FIRST, PARAMS)
    talk.batcher.gate.set()
    assert await first == "ls"
    assert talk.session.turns == 1


async def test_a_cancelled_turn_leaves_the_session_as_it_was(talk: Talk, tokenizer: Any) -> None:
    talk.batcher.gate = asyncio.Event()
    task = asyncio.create_task(talk.say(encode(tokenizer, "ls")))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (talk.session.turns, talk.session.tokens, talk.session.busy) == (0, [], False)


async def test_closing_a_session_ends_its_turn_and_the_sample_stays_as_it_was(talk: Talk, tokenizer: Any) -> None:
    await talk.say(encode(tokenizer, "ls"))
    talk.ask("Exit code 1.")
    talk.batcher.gate = asyncio.Event()
    task = asyncio.create_task(talk.say(encode(tokenizer, "rm")))
    await asyncio.sleep(0)
    closed = talk.sessions.close(talk.session.id)
    mask, tokens = closed.loss_mask, list(closed.tokens)
    with pytest.raises(SessionClosed, match=closed.id):
        await task
    talk.batcher.gate.set()
    await asyncio.sleep(0)
    assert closed.tokens == tokens and len(mask) == closed.response_length
    assert talk.batcher.answers, "the closed turn was sampled all the same"


async def test_what_cannot_fit_is_refused_before_it_is_tokenized(tokenizer: Any) -> None:
    talk = Talk(tokenizer, max_seq_len=50)
    talk.messages = [{"role": "user", "content": "word " * 2000}]
    with pytest.raises(ContextOverflow, match=r"maximum context length is 50 .* 10000 characters"):
        await talk.say([])


async def test_a_full_context_is_refused_and_a_nearly_full_one_shortens_the_turn(tokenizer: Any) -> None:
    length = len(encode(tokenizer, tokenizer.apply_chat_template(FIRST, tokenize=False, add_generation_prompt=True)))
    full = Talk(tokenizer, max_seq_len=length)
    with pytest.raises(ContextOverflow, match=f"maximum context length is {length} .* resulted in {length} tokens"):
        await full.say([])
    assert not full.batcher.seen and not full.session.turns
    nearly = Talk(tokenizer, max_seq_len=length + 3)
    await nearly.say(encode(tokenizer, "ls"), params=SamplingParams(0.7, 20))
    assert nearly.batcher.seen[0].params.max_new_tokens == 3


async def test_without_a_limit_of_its_own_a_turn_gets_the_default(talk: Talk, tokenizer: Any) -> None:
    await talk.say(encode(tokenizer, "ls"))
    talk.ask("more")
    await talk.say(encode(tokenizer, "ls"), params=SamplingParams(0.7, 7))
    assert [g.params.max_new_tokens for g in talk.batcher.seen] == [50, 7]


def test_sessions_have_one_name_each(talk: Talk) -> None:
    talk.sessions.create(name="a")
    with pytest.raises(ValueError, match="open already"):
        talk.sessions.create(name="a")
    talk.sessions.close("a")
    with pytest.raises(KeyError):
        talk.sessions.get("a")


def test_a_seed_fixes_the_stream(talk: Talk) -> None:
    first, second, other = (talk.sessions.create(seed=seed).stream.random() for seed in ("x", "x", "y"))
    assert first == second != other

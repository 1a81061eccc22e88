"""Turns that share forward passes: none is lost, failures reach their callers, and lock step ignores the clock."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from local_engine.batcher import Batcher, EngineStopped
from local_engine.sampler import Generation, Sampler, SamplingParams

PROMPT = [10 + n % 90 for n in range(30)]
Make = Callable[..., Batcher]


@pytest.fixture
async def make_batcher(make_sampler: Callable[..., Sampler]) -> AsyncIterator[Make]:
    executor, made = ThreadPoolExecutor(1), list[Batcher]()

    def make(slots: int = 4, *, lock_step: bool = False, sampler: Any = None) -> Batcher:
        batcher = Batcher(sampler or make_sampler(slots), executor, lock_step=lock_step)
        batcher.start()
        made.append(batcher)
        return batcher

    yield make
    for batcher in made:
        await batcher.stop()
    executor.shutdown()


def turn(session: str, tokens: list[int] | None = None, new: int = 5) -> Generation:
    return Generation(session, tokens or [*PROMPT, ord(session[0])], SamplingParams(0.7, new), random.Random(session))


async def test_turns_that_arrive_together_or_one_by_one_are_all_answered(make_batcher: Make) -> None:
    batcher = make_batcher(2)
    names = "abcdefgh"
    for name in names:
        batcher.open(name)

    async def late(number: int, name: str) -> Generation:
        await asyncio.sleep(0.01 * (number % 3))
        return await batcher.generate(turn(name))

    done = await asyncio.wait_for(asyncio.gather(*(late(n, name) for n, name in enumerate(names))), 30)
    assert [g.session for g in done] == list(names)
    assert all(len(g.ids) == 5 for g in done)


@pytest.mark.parametrize("seed", range(3))
async def test_lock_step_batches_do_not_depend_on_arrival(seed: int, make_batcher: Make) -> None:
    """Two turns of five sessions, one of which ends after its first: bit for bit the same in any order of arrival."""

    async def conversations(order: list[str], pauses: list[float]) -> dict[str, list[tuple[list[int], list[float]]]]:
        batcher = make_batcher(5, lock_step=True)
        for name in "abcde":
            batcher.open(name)
        said: dict[str, list[tuple[list[int], list[float]]]] = {}

        async def one(name: str, pause: float) -> None:
            await asyncio.sleep(pause)
            stream, tokens = random.Random(name), [*PROMPT, ord(name)]
            for _ in range(1 if name == "c" else 2):
                g = Generation(name, tokens, SamplingParams(0.7, 6), stream)
                await batcher.generate(g)
                said.setdefault(name, []).append((g.ids, g.log_probs))
                tokens = [*tokens, *g.ids, 50, 51]
                await asyncio.sleep(pause)
            batcher.close(name)

        await asyncio.wait_for(asyncio.gather(*(one(n, p) for n, p in zip(order, pauses, strict=True))), 30)
        return said

    plain = await conversations(list("abcde"), [0.0] * 5)
    draw = random.Random(seed)
    other = await conversations(draw.sample("abcde", 5), [draw.random() * 0.05 for _ in range(5)])
    assert other == plain
    assert [len(plain[name]) for name in "abcde"] == [2, 2, 1, 2, 2]


async def test_lock_step_waits_for_every_open_session(make_batcher: Make) -> None:
    batcher = make_batcher(2, lock_step=True)
    batcher.open("a")
    batcher.open("b")
    first = asyncio.create_task(batcher.generate(turn("a")))
    await asyncio.sleep(0.1)
    assert not first.done()
    batcher.close("b")
    assert (await asyncio.wait_for(first, 10)).finish_reason == "length"


async def test_a_cancelled_turn_does_not_hold_up_the_others(make_batcher: Make) -> None:
    batcher = make_batcher(1)
    long = asyncio.create_task(batcher.generate(turn("a", new=100_000)))
    await asyncio.sleep(0.1)
    short = asyncio.create_task(batcher.generate(turn("b")))  # there is one slot
    await asyncio.sleep(0.1)
    assert not short.done()
    long.cancel()
    assert len((await asyncio.wait_for(short, 10)).ids) == 5
    with pytest.raises(asyncio.CancelledError):
        await long


async def test_cancelling_in_lock_step_lets_the_rest_go_on(make_batcher: Make) -> None:
    batcher = make_batcher(2, lock_step=True)
    batcher.open("a")
    batcher.open("b")
    waiting = asyncio.create_task(batcher.generate(turn("a")))
    gone = asyncio.create_task(batcher.generate(turn("b", new=100_000)))
    await asyncio.sleep(0.1)
    gone.cancel()
    batcher.close("b")
    assert (await asyncio.wait_for(waiting, 10)).finish_reason == "length"
    assert (await asyncio.wait_for(batcher.generate(turn("a")), 10)).finish_reason == "length"


class FailingSampler:
    """Stub: fails in its first forward pass."""

    busy = False

    def __init__(self, error: Exception) -> None:
        self.error = error

    def add(self, generation: Generation) -> None:
        self.busy = True

    def step(self) -> list[Generation]:
        raise self.error


@pytest.mark.parametrize("kind", [RuntimeError, FloatingPointError, AssertionError])
async def test_a_failed_forward_pass_reaches_every_caller(kind: type[Exception], make_batcher: Make) -> None:
    batcher = make_batcher(sampler=FailingSampler(kind("out of memory, said the stub")))
    results = await asyncio.wait_for(
        asyncio.gather(*(batcher.generate(turn(name)) for name in "ab"), return_exceptions=True), 10
    )
    assert [str(r) for r in results] == ["out of memory, said the stub"] * 2
    with pytest.raises(RuntimeError, match="not running"):
        await batcher.generate(turn("c"))


async def test_stopping_tells_who_still_waits(make_batcher: Make) -> None:
    batcher = make_batcher()
    waiting = asyncio.create_task(batcher.generate(turn("a", new=100_000)))
    await asyncio.sleep(0.05)
    await batcher.stop()
    with pytest.raises(EngineStopped, match="is stopping"):
        await asyncio.wait_for(waiting, 10)

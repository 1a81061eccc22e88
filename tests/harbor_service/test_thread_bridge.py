"""Synchronous code waits for coroutines, and ends when the episode is ended from outside."""

import asyncio
import threading
import time

import pytest

from harbor_service.thread_bridge import EpisodeEnded, ThreadBridge


async def test_work_gets_results_and_errors_of_what_it_waits_for() -> None:
    bridge = ThreadBridge()

    async def double(value: int) -> int:
        await asyncio.sleep(0)
        if value < 0:
            raise ValueError(f"negative: {value}")
        return 2 * value

    def work() -> list[object]:
        first: object = bridge.wait_for(lambda: double(4))
        try:
            bridge.wait_for(lambda: double(-1))
        except ValueError as error:
            return [first, str(error)]
        return []

    assert await bridge.run(work, "test") == [8, "negative: -1"]


async def test_error_of_the_work_is_the_callers() -> None:
    def work() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await ThreadBridge().run(work, "test")


async def test_cancelled_episode_ends_its_wait_and_its_thread() -> None:
    bridge, waiting, ended = ThreadBridge(), asyncio.Event(), threading.Event()
    cleaned: list[str] = []

    async def endless() -> None:
        waiting.set()
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.05)
            cleaned.append("up")

    def work() -> None:
        try:
            bridge.wait_for(endless)
        finally:
            ended.set()

    episode = asyncio.create_task(bridge.run(work, "test"))
    await waiting.wait()
    episode.cancel()
    with pytest.raises(asyncio.CancelledError):
        await episode
    assert ended.is_set() and cleaned == ["up"]


async def test_code_that_goes_on_after_its_end_can_wait_for_nothing_more() -> None:
    bridge, started, go_on = ThreadBridge(), asyncio.Event(), threading.Event()
    loop, seen = asyncio.get_running_loop(), list[BaseException]()

    def work() -> None:
        loop.call_soon_threadsafe(started.set)
        go_on.wait(10)
        try:
            bridge.wait_for(lambda: asyncio.sleep(3600))
        except EpisodeEnded as error:
            seen.append(error)

    episode = asyncio.create_task(bridge.run(work, "test"))
    await started.wait()
    episode.cancel()
    await asyncio.sleep(0.05)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await episode
    assert len(seen) == 1


async def test_a_hundred_episodes_wait_at_the_same_time() -> None:
    arrived, all_here = 0, asyncio.Event()

    async def meet() -> None:
        nonlocal arrived
        arrived += 1
        if arrived == 100:
            all_here.set()
        await all_here.wait()

    def episode() -> asyncio.Task[None]:
        bridge = ThreadBridge()
        return asyncio.create_task(bridge.run(lambda: bridge.wait_for(meet), "test"))

    before = threading.active_count()
    await asyncio.wait_for(asyncio.gather(*(episode() for _ in range(100))), 60)
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    assert threading.active_count() <= before

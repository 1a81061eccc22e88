"""Synchronous agent code in a thread whose waits are coroutines of the event loop."""

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class EpisodeEnded(RuntimeError):
    """The episode was ended from outside while its code wanted to wait for something."""


class ThreadBridge:
    """`await run(work)` runs `work` in a thread; `work` calls `wait_for` where it would await.

    A cancelled `run` cancels what `work` waits for and returns when both have ended. Each episode has a thread of its
    own: the size of a shared pool would be a second, hidden limit of concurrency.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._closed = False
        self._answer: Future[Any] | None = None
        self._task: asyncio.Task[Any] | None = None

    async def run[T](self, work: Callable[[], T], name: str) -> T:
        """The result of `work`, or what it raised."""
        executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        ended = asyncio.wrap_future(executor.submit(contextvars.copy_context().run, work))
        executor.shutdown(wait=False)
        try:
            await asyncio.wait({ended})
        except asyncio.CancelledError:
            self._close()
            await asyncio.wait({ended, self._task} if self._task is not None else {ended})
            ended.exception()  # ended from outside: what the code says to that is of no interest
            raise
        return ended.result()

    def wait_for[T](self, make: Callable[[], Awaitable[T]]) -> T:
        """In the thread: the result of what `make` returns in the event loop.

        Raises:
            EpisodeEnded, concurrent.futures.CancelledError: `run` was cancelled. And whatever the awaitable raises.
        """
        with self._lock:
            if self._closed:
                raise EpisodeEnded("the episode was ended")
            self._answer = answer = asyncio.run_coroutine_threadsafe(self._in_loop(make), self._loop)
        return answer.result()

    async def _in_loop[T](self, make: Callable[[], Awaitable[T]]) -> T:
        self._task = asyncio.current_task()
        return await make()

    def _close(self) -> None:
        with self._lock:
            self._closed = True
            if self._answer is not None:
                self._answer.cancel()

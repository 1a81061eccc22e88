"""Turns of many sessions, arriving at different times, share the sampler's forward passes."""

import asyncio
import time
from concurrent.futures import Executor

from local_engine.sampler import Generation, Sampler

GATHER_SECONDS = 0.01  # a group's first turns arrive within a few milliseconds of each other


class SamplingFailed(RuntimeError):
    """A forward pass failed (out of memory, ...); nothing is sampled any more."""


class EngineStopped(RuntimeError):
    """The engine ends: turns that wait are not sampled."""


class Batcher:
    """Feeds the sampler from an event loop; every forward pass runs on `executor`, which must have one thread.

    With `lock_step` a batch starts only when every open session waits for a turn, and is sampled to its end before
    the next one starts: what shares a forward pass then depends on the sessions alone, not on the clock.
    """

    def __init__(self, sampler: Sampler, executor: Executor, *, lock_step: bool = False) -> None:
        self._sampler = sampler
        self._executor = executor
        self._lock_step = lock_step
        self._open: set[str] = set()
        self._arrived: list[tuple[Generation, asyncio.Future[Generation]]] = []
        self._abandoned: list[Generation] = []
        self._closed: list[str] = []
        self._changed = asyncio.Event()
        self._futures: dict[int, asyncio.Future[Generation]] = {}
        self._task: asyncio.Task[None] | None = None
        self.busy_seconds = 0.0  # of forward passes since the start

    def start(self) -> None:
        self._task = asyncio.create_task(self._serve(), name="batcher")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def require_alive(self) -> None:
        """Raises SamplingFailed when a forward pass has ended the sampling."""
        if self._task is None or not self._task.done() or self._task.cancelled():
            return
        if error := self._task.exception():
            raise SamplingFailed(f"sampling failed with {type(error).__name__}: {error}") from error

    def open(self, session: str) -> None:
        self._open.add(session)

    def close(self, session: str) -> None:
        self._open.discard(session)
        self._closed.append(session)
        self._changed.set()

    async def generate(self, generation: Generation) -> Generation:
        """Wait for one turn. Raises whatever the forward pass raised; cancelled, the turn is forgotten."""
        if self._task is None or self._task.done():
            raise EngineStopped("the batcher is not running")
        future: asyncio.Future[Generation] = asyncio.get_running_loop().create_future()
        self._arrived.append((generation, future))
        self._changed.set()
        try:
            return await future
        except asyncio.CancelledError:
            self._arrived = [(g, f) for g, f in self._arrived if g is not generation]
            # In lock step nothing new starts while a turn is waited for: an abandoned one is not.
            self._futures.pop(id(generation), None)
            self._abandoned.append(generation)
            self._changed.set()
            raise

    def _ready(self) -> bool:
        if not self._lock_step:
            return bool(self._arrived)
        return bool(self._arrived) and {g.session for g, _ in self._arrived} >= self._open

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                while not self._ready():
                    self._changed.clear()
                    await self._changed.wait()
                if not self._lock_step:
                    await asyncio.sleep(GATHER_SECONDS)
                else:
                    self._arrived.sort(key=lambda pair: pair[0].session)
                busy = True
                while busy:
                    batch = self._admit()
                    finished, busy = await loop.run_in_executor(self._executor, self._advance, *batch)
                    for generation in finished:
                        future = self._futures.pop(id(generation), None)
                        if future is not None and not future.done():
                            future.set_result(generation)
                    # Let the answers go out, and follow-up turns of quick sessions come in.
                    await asyncio.sleep(0)
        except asyncio.CancelledError:
            self._fail(EngineStopped("the engine is stopping"))
            raise
        except Exception as error:  # whatever it is, nobody may be left waiting for an answer
            self._fail(error)
            raise

    def _admit(self) -> tuple[list[Generation], list[Generation], list[str]]:
        new: list[Generation] = []
        if not self._lock_step or not self._futures:
            for generation, future in self._arrived:
                self._futures[id(generation)] = future
                new.append(generation)
            self._arrived = []
        abandoned, self._abandoned = self._abandoned, []
        closed, self._closed = self._closed, []
        return new, abandoned, closed

    def _advance(
        self, new: list[Generation], abandoned: list[Generation], closed: list[str]
    ) -> tuple[list[Generation], bool]:
        for generation in new:
            self._sampler.add(generation)
        for generation in abandoned:
            self._sampler.cancel(generation)
        for session in closed:
            self._sampler.close(session)
        began = time.monotonic()
        finished = self._sampler.step() if self._sampler.busy else []
        self.busy_seconds += time.monotonic() - began
        return finished, self._sampler.busy

    def _fail(self, error: Exception) -> None:
        waiting = [*self._futures.values(), *(f for _, f in self._arrived)]
        for future in waiting:
            if not future.done():
                future.set_exception(error)
        self._futures.clear()
        self._arrived = []

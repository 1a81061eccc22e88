"""Who runs, who waits, what ended: the one place that starts and cancels trials."""

import asyncio
import itertools
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from trajectory.outcome import Outcome, discarded

_logger = logging.getLogger(__name__)
_KEPT_RESULTS = 200


class DeskClosed(Exception):
    """The server is shutting down and takes no more trials."""


class QueueFull(Exception):
    """As many trials wait as may wait."""


@dataclass
class Entry:
    """One trial on the desk; times are seconds of the monotonic clock."""

    number: int
    instance_id: str
    agent_name: str
    owner: str | None  # session server instance
    queued_at: float
    trial_name: str = ""  # its folder below the trials folder
    started_at: float | None = None
    finished_at: float | None = None
    cancelled: str | None = None  # why it was ended from outside
    outcome: Outcome | None = None
    task: asyncio.Task[Outcome] | None = field(default=None, repr=False)

    @property
    def queue_seconds(self) -> float:
        """How long it waited for a free slot, up to now while it still waits."""
        left = self.started_at or self.finished_at or time.monotonic()
        return left - self.queued_at

    @property
    def trial_seconds(self) -> float:
        """How long it has been running, 0 while it waits."""
        return 0.0 if self.started_at is None else (self.finished_at or time.monotonic()) - self.started_at


class TrialDesk:
    """At most `max_concurrent` trials at once, first come first served.

    A slot is free again when its trial's sandbox is gone, so the limit also holds for what a cancelled trial
    leaves to clean up. The clock of a trial starts when it leaves the queue. `on_end` hears of every ended trial.
    """

    def __init__(
        self, max_concurrent: int, max_queued: int = 4096, on_end: Callable[[Entry], None] = lambda entry: None
    ) -> None:
        self.max_concurrent = max_concurrent
        self.max_queued = max_queued
        self._on_end = on_end
        self.results: deque[Entry] = deque(maxlen=_KEPT_RESULTS)
        self._slots = asyncio.Semaphore(max_concurrent)
        self._entries: dict[int, Entry] = {}
        self._numbers = itertools.count(1)
        self._closed: str | None = None

    @property
    def running(self) -> list[Entry]:
        return [e for e in self._entries.values() if e.started_at is not None and e.finished_at is None]

    @property
    def queued(self) -> list[Entry]:
        return [entry for entry in self._entries.values() if entry.started_at is None]

    @property
    def closed(self) -> bool:
        return self._closed is not None

    def find(self, number: int) -> Entry | None:
        """The queued, running or lately ended trial of that number."""
        return self._entries.get(number) or next((entry for entry in self.results if entry.number == number), None)

    def start(
        self,
        instance_id: str,
        agent_name: str,
        owner: str | None,
        work: Callable[[Entry], Awaitable[Outcome]],
        trial_name: str = "",
    ) -> Entry:
        """Queue `work`; its outcome comes from `outcome_of`.

        Raises:
            DeskClosed: the server is shutting down.
            QueueFull: `max_queued` trials wait already.
        """
        if self._closed is not None:
            raise DeskClosed(self._closed)
        # A trial in its first moment has not taken its free slot yet: what is on the desk counts, not what waits.
        if len(self._entries) >= self.max_concurrent + self.max_queued:
            raise QueueFull(f"{self.max_queued} trials wait already and {self.max_concurrent} may run (--max-queued)")
        entry = Entry(next(self._numbers), instance_id, agent_name, owner, time.monotonic(), trial_name)
        self._entries[entry.number] = entry
        entry.task = asyncio.create_task(self._work(entry, work), name=f"trial-{entry.number}")
        # Not a `finally` of the work: a task that is cancelled before its first step never enters its body.
        entry.task.add_done_callback(lambda _: self._leave(entry))
        return entry

    async def outcome_of(self, entry: Entry) -> Outcome:
        """Wait for the trial. When the waiter is cancelled the trial is, and its sandbox is gone on return."""
        task = _task(entry)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            self.cancel(entry, "the request was cancelled")
            await asyncio.wait({task})
            raise
        return _ending(entry, task)

    def cancel(self, entry: Entry, reason: str) -> bool:
        """End one trial; False if it has ended or is being ended. A second cancel would cut its clean-up short."""
        task = _task(entry)
        if task.done() or entry.cancelled is not None:
            return False
        entry.cancelled = reason
        task.cancel(reason)
        return True

    async def cancel_owned_by(self, owner: str) -> int:
        """End all trials of one session server instance and wait until they are gone; answers how many."""
        victims = [entry for entry in self._entries.values() if entry.owner == owner]
        ended = [entry for entry in victims if self.cancel(entry, "flushed")]
        await self._gone(victims)
        return len(ended)

    async def drain(self, reason: str, seconds: float) -> int:
        """Take no more trials, end those that wait, give the others `seconds`; answers how many still run."""
        self._closed = reason
        for entry in self.queued:
            self.cancel(entry, reason)
        return await self._gone(list(self._entries.values()), seconds)

    async def close(self, reason: str, grace: float) -> int:
        """Take no more trials, end all, wait at most `grace` seconds; answers how many are still not gone."""
        self._closed = reason
        victims = list(self._entries.values())
        for entry in victims:
            self.cancel(entry, reason)
        return await self._gone(victims, grace)

    async def _gone(self, entries: list[Entry], timeout: float | None = None) -> int:
        tasks = {_task(entry) for entry in entries}
        if not tasks:
            return 0
        _, pending = await asyncio.wait(tasks, timeout=timeout)
        return len(pending)

    async def _work(self, entry: Entry, work: Callable[[Entry], Awaitable[Outcome]]) -> Outcome:
        async with self._slots:
            entry.started_at = time.monotonic()
            try:
                return await work(entry)
            finally:
                entry.finished_at = time.monotonic()

    def _leave(self, entry: Entry) -> None:
        task = _task(entry)
        entry.finished_at = entry.finished_at or time.monotonic()
        del self._entries[entry.number]
        if not task.cancelled() and (error := task.exception()) is not None:
            _logger.error("%s: the server failed", entry.instance_id, exc_info=error)
            return
        outcome = entry.outcome = _ending(entry, task)
        self.results.append(entry)
        self._on_end(entry)
        _logger.info(
            "%s %s: %s, reward %s, %.2f s after %.2f s in the queue",
            entry.agent_name,
            entry.instance_id,
            outcome.exit_status,
            outcome.reward,
            entry.trial_seconds,
            entry.queue_seconds,
        )


def _ending(entry: Entry, task: asyncio.Task[Outcome]) -> Outcome:
    """The outcome of a task that is done. What fails while a cancelled trial is cleaned up is not its ending."""
    if task.cancelled() or entry.cancelled is not None:
        return discarded("Aborted", reason=entry.cancelled or "cancelled")
    return task.result()


def _task(entry: Entry) -> asyncio.Task[Outcome]:
    if entry.task is None:
        raise RuntimeError(f"trial {entry.number} was not started")
    return entry.task

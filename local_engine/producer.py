"""Groups of trajectories that are sampled while others are trained on.

As in Miles' fully asynchronous rollout: at most one batch of groups is under way, finished ones wait in a queue, a
group goes on while weights change, one with a discarded trajectory is given up and the next prompt's takes its place,
and one that is too old when its turn comes is dropped. Other than there, no group is started that could only become
too old: sampled but not trained are at most (staleness + 1) batches (the staleness control of AReaL, arXiv 2505.24298).
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from local_engine.config import LocalRunConfig
from local_engine.data import PromptStream
from local_engine.rollout import Collector, Report, RolloutResult, StartedGroup
from local_engine.staleness import group_staleness, staleness_of
from local_engine.training_data import Sample


@dataclass
class _Group:
    """One that is under way, finished or being trained on."""

    start: StartedGroup
    result: RolloutResult = field(default_factory=RolloutResult)
    samples: list[Sample] = field(default_factory=list[Sample])
    ended: int = 0  # trajectories


class GroupProducer:
    """`pending` are the groups that a stopped run had started and not trained on: they are started again, first."""

    def __init__(
        self,
        collector: Collector,
        prompts: PromptStream,
        config: LocalRunConfig,
        most_staleness: int,
        pending: Sequence[StartedGroup],
        report: Report,
    ) -> None:
        self._collector = collector
        self._prompts = prompts
        self._config = config
        self._most_staleness = most_staleness
        self._again = deque(pending)
        self._report = report
        self._running: dict[asyncio.Task[list[Sample]], _Group] = {}
        self._finished: list[_Group] = []
        self._training: list[_Group] = []
        self._discarded: Counter[str] = Counter()
        self._dropped = 0
        self._to_go = 0
        self._error: BaseException | None = None
        self._changed = asyncio.Event()
        self._open = False

    def produce(self, steps_to_go: int) -> None:
        """Begin, or go on after `pause` and after a step; no more is started than `steps_to_go` steps will take."""
        self._to_go = steps_to_go
        self._training = []
        self._open = True
        self._start_more()

    def pause(self) -> None:
        """Start nothing new; what is under way goes on."""
        self._open = False

    async def take(self, version: int) -> RolloutResult:
        """One step's groups, those started first; until `produce` they count as not trained. `seconds`: waited here.

        Raises what ended a trajectory: TooManyDiscards, SamplingFailed.
        """
        began, size = time.monotonic(), self._config.rollout_batch_size
        while True:
            if self._error is not None:
                raise self._error
            self._drop_stale(version)
            if len(self._finished) >= size:
                break
            self._changed.clear()
            await self._changed.wait()
        self._finished.sort(key=lambda group: group.start.group)
        self._training, self._finished = self._finished[:size], self._finished[size:]
        groups = [group.samples for group in self._training]
        taken = RolloutResult(
            groups=groups,
            messages={index: m for group in self._training for index, m in group.result.messages.items()},
            discarded=self._discarded,
            seconds=time.monotonic() - began,
            staleness=staleness_of(groups, version, self._dropped),
        )
        self._discarded, self._dropped = Counter(), 0
        return taken

    def pending(self) -> list[StartedGroup]:
        """Every group started and not handed out, in the order of the prompts."""
        groups = [group.start for group in (*self._running.values(), *self._finished)]
        return sorted([*groups, *self._again], key=lambda start: start.group)

    async def close(self) -> None:
        """End what is under way."""
        self._open = False
        running = list(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    def _start_more(self) -> None:
        size = self._config.rollout_batch_size
        most = min(self._most_staleness + 1, self._to_go) * size
        while (
            self._open
            and len(self._running) < size
            and len(self._running) + len(self._finished) + len(self._training) < most
        ):
            self._start(self._again.popleft() if self._again else self._collector.next_group(self._prompts))

    def _start(self, start: StartedGroup) -> None:
        group = _Group(start)

        def one_ended() -> None:
            group.ended += 1
            self._tell()

        # Which rollout will train on it is not known yet, as in Miles.
        task = self._collector.start_group(None, self._prompts.at(start.position), start, group.result, one_ended)
        self._running[task] = group
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[list[Sample]]) -> None:
        group = self._running.pop(task)
        if task.cancelled():
            return
        self._discarded += group.result.discarded
        if error := task.exception():
            self._error = error
        else:
            group.samples = task.result()
            if not any(sample["status"] == "aborted" for sample in group.samples):
                self._finished.append(group)
            self._start_more()
        self._changed.set()

    def _drop_stale(self, version: int) -> None:
        fresh = [g for g in self._finished if group_staleness(g.samples, version) <= self._most_staleness]
        self._dropped += len(self._finished) - len(fresh)
        self._finished = fresh
        self._start_more()

    def _tell(self) -> None:
        if not self._open:
            return  # while paused, what is shown is the evaluation's
        trials = self._config.rollout_batch_size * self._config.n_samples_per_prompt
        ended = sum(group.ended for group in (*self._running.values(), *self._finished))
        self._report(min(ended, trials), trials, self._discarded.total())

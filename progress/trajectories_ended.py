"""What became of the trajectories of each rollout, from all outcome files together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from progress.outcome_tally import FileTally, LooseLine, Tally


@dataclass
class Ended:
    """Trajectories of one rollout or of a stretch of time; times in Unix seconds."""

    scored: Counter[str] = field(default_factory=Counter[str])
    discarded: Counter[str] = field(default_factory=Counter[str])
    began: float | None = None
    ended: float | None = None
    groups: set[int] = field(default_factory=set[int])

    @property
    def total(self) -> int:
        return self.scored.total() + self.discarded.total()

    def add(self, tally: Tally) -> None:
        self.scored.update(tally.statuses)
        self.discarded.update(tally.discards)
        self.began = min((t for t in (self.began, tally.began) if t is not None), default=None)
        self.ended = max((t for t in (self.ended, tally.ended) if t is not None), default=None)
        self.groups.update(tally.groups)

    def add_loose(self, line: LooseLine) -> None:
        (self.discarded if line.discard else self.scored)[line.status] += 1
        if line.time is not None:
            self.began = min(self.began or line.time, line.time)
            self.ended = max(self.ended or line.time, line.time)


@dataclass(frozen=True)
class AllEnded:
    """`by_rollout` of the last attempt at each; `repeated` rollouts were finished before and collected again."""

    by_rollout: Mapping[int, Ended]
    loose: tuple[LooseLine, ...]  # in the order of their times
    repeated: frozenset[int]
    evaluated_at: float | None

    @property
    def last_time(self) -> float | None:
        times = [ended.ended for ended in self.by_rollout.values()] + [line.time for line in self.loose[-1:]]
        return max((t for t in times if t is not None), default=None)


def all_ended(files: Sequence[FileTally]) -> AllEnded:
    """Files of several processes of one rollout add up; of two that hold the same trajectories, the later counts."""
    tallies = [_by_id(file) for file in files]
    by_rollout: dict[int, Ended] = {}
    repeated: set[int] = set()
    for rollout_id in sorted({rollout_id for tally in tallies for rollout_id in tally}):
        attempts = [(tally[rollout_id], max(tally)) for tally in tallies if rollout_id in tally]
        kept: list[tuple[Tally, int]] = []
        for tally, last in sorted(attempts, key=lambda attempt: attempt[0].ended or 0.0):
            again = [earlier for earlier in kept if not set(earlier[0].indices).isdisjoint(tally.indices)]
            # A process that went on to later rollouts had written this one.
            if any(of > rollout_id for _, of in again):
                repeated.add(rollout_id)
            kept = [earlier for earlier in kept if earlier not in again] + [(tally, last)]
        ended = by_rollout[rollout_id] = Ended()
        for tally, _ in kept:
            ended.add(tally)
    loose = sorted((line for file in files for line in file.loose), key=lambda line: line.time or 0.0)
    evaluated = [file.evaluated_at for file in files if file.evaluated_at is not None]
    return AllEnded(by_rollout, tuple(loose), frozenset(repeated), max(evaluated, default=None))


def _by_id(file: FileTally) -> dict[int, Tally]:
    return {int(key): tally for key, tally in file.steps.items() if key.isascii() and key.isdigit()}

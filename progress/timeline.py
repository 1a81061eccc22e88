"""When each step was written, as far as the times of the files can be believed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from progress.scan import Scan
from progress.trajectories_ended import AllEnded, Ended
from progress.words import median

SKEW = 5.0  # seconds that the clocks of trainer and rollout machines may differ
_LATER = 0.5  # seconds; rollout dumps come from one process, in order
RECENT = 20  # steps that the median step time is taken of
_COPIED = 0.02  # seconds between two dumps; no step is that fast, a copy is


@dataclass(frozen=True)
class Timeline:
    """Times in Unix seconds, by rollout id. `copied`: the files' times are those of a copy and say nothing of steps."""

    copied: bool
    rollouts: Mapping[int, float]  # when the dumps were written
    training: Mapping[tuple[int, int], float]
    trained: Mapping[int, float]  # when the last rank wrote
    evaluations: Mapping[int, float]
    last: int | None  # the rollout that was written last
    leftover: frozenset[int]  # rollouts of an attempt before a resume, beyond the last
    again: frozenset[int]  # rollouts written again in front of those
    untrained: frozenset[int]  # rollouts that are newer than a train dump of theirs: what was trained was another
    step_seconds: float | None  # median time from one dump to the next
    newest: float | None  # when a dump of any kind was written last

    def written(self, rollout_id: int, rank: int) -> bool:
        """Whether the dump of this rank belongs to the rollout as it is now, and not to an attempt before a resume."""
        rollout = self.rollouts.get(rollout_id)
        return self.copied or rollout is None or self.training[rollout_id, rank] >= rollout - SKEW


def timeline(scan: Scan, ended: AllEnded) -> Timeline:
    """Of the dumps that can be read; one that cannot shows only that something was written."""
    folder = scan.folder
    rollouts = {step: folder.rollouts[step].written_at for step in sorted(scan.rollouts)}
    training = {key: folder.training[key].written_at for key in scan.training}
    evaluations = {step: folder.evaluations[step].written_at for step in scan.evaluations}
    newest = max((stamp.written_at for stamp in folder.dumps), default=None)
    of_steps: dict[int, float] = {}
    for (step, _), time in training.items():
        of_steps[step] = max(time, of_steps.get(step, time))
    times = dict(sorted((of_steps | rollouts).items()))
    copied = _is_copy(times, of_steps, rollouts, ended.by_rollout)
    last = max(times, key=lambda step: (times[step], step), default=None)
    leftover: frozenset[int] = frozenset()
    again: frozenset[int] = frozenset()
    if copied or last is None or _scrambled(times):
        last = max(times, default=None)
    else:
        leftover = frozenset(step for step in times if step > last and times[step] < times[last] - _LATER)
        last = last if leftover else max(times)
        older = max((times[step] for step in leftover), default=None)
        again = frozenset(step for step in times if older is not None and step <= last and times[step] > older)
    untrained = frozenset(
        step for (step, _), time in training.items() if not copied and step in rollouts and time < rollouts[step] - SKEW
    )
    seconds = _step_seconds(times if not copied else _ends(ended.by_rollout), leftover)
    return Timeline(
        copied, rollouts, training, of_steps, evaluations, last, leftover, again, untrained, seconds, newest
    )


def _is_copy(
    times: Mapping[int, float],
    trained: Mapping[int, float],
    rollouts: Mapping[int, float],
    ended: Mapping[int, Ended],
) -> bool:
    """Times closer together than steps can be, later than the trajectories of the step after, or trained first."""
    if len(times) > 1 and max(times.values()) - min(times.values()) < _COPIED * len(times):
        return True
    following = [
        times[step] > after
        for step in times
        if step in ended and step + 1 in ended and (after := ended[step + 1].ended) is not None
    ]
    if len(following) > 1 and sum(following) > len(following) / 2:
        return True
    before = [trained[step] < rollouts[step] - SKEW for step in trained if step in rollouts]
    return len(before) > 2 and sum(before) > len(before) / 2


def _scrambled(times: Mapping[int, float]) -> bool:
    """More steps older than the one before than a few resumes explain: copied file by file, in no order."""
    falls = sum(after < before - _LATER for before, after in pairwise(times.values()))
    return falls > max(1, len(times) // 3)


def _ends(ended: Mapping[int, Ended]) -> dict[int, float]:
    return {step: one.ended for step, one in sorted(ended.items()) if one.ended is not None}


def _step_seconds(times: Mapping[int, float], leftover: frozenset[int]) -> float | None:
    current = [(step, time) for step, time in times.items() if step not in leftover]
    between = [
        (later - earlier) / (after - before)
        for (before, earlier), (after, later) in pairwise(current)
        if later - earlier > _COPIED
    ]
    return median(between[-RECENT:])

"""Steps out of what was read: dumps, train dumps and outcomes of the same rollout put together."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from progress.dump_summary import SampleSummary, TrainSummary
from progress.scan import Scan
from progress.step import Evaluation, Step
from progress.timeline import Timeline
from progress.trajectories_ended import AllEnded, Ended

NEVER_RAN = "NeverRan"


def make_steps(scan: Scan, ended: AllEnded, times: Timeline) -> tuple[Step, ...]:
    """One for each rollout of which a dump, or failing that a train dump, can be read; by rollout id."""
    ranks = ranks_written(scan, times)
    expected = expected_ranks(scan, ranks)
    by_rollout = {**ended.by_rollout, **_by_time(ended, times)}
    rollout_ids = sorted(scan.rollouts.keys() | ranks.keys())
    return tuple(
        _step(
            rollout_id,
            scan.rollouts.get(rollout_id),
            [scan.training[rollout_id, rank] for rank in ranks.get(rollout_id, ())],
            by_rollout.get(rollout_id, Ended()),
            ranks.get(rollout_id, ()),
            expected,
            times,
        )
        for rollout_id in rollout_ids
    )


def make_evaluations(scan: Scan, times: Timeline) -> tuple[Evaluation, ...]:
    return tuple(
        Evaluation(
            rollout_id=rollout_id,
            trajectories=summary.trajectories - sum(summary.aborted.values()),
            reward_mean=summary.reward_mean,
            solved=summary.solved / summary.scored if summary.scored > 0 else None,
            written_at=None if times.copied else times.evaluations.get(rollout_id),
        )
        for rollout_id, summary in sorted(scan.evaluations.items())
    )


def ranks_written(scan: Scan, times: Timeline) -> dict[int, tuple[int, ...]]:
    """Trainer ranks by rollout, of train dumps that can be read and belong to the rollout as it is now."""
    ranks: dict[int, list[int]] = {}
    for rollout_id, rank in sorted(scan.training):
        if times.written(rollout_id, rank):
            ranks.setdefault(rollout_id, []).append(rank)
    return {rollout_id: tuple(found) for rollout_id, found in ranks.items()}


def expected_ranks(scan: Scan, ranks: Mapping[int, Sequence[int]]) -> frozenset[int]:
    """As the launch file says, else the largest set that any step has."""
    if scan.launch.train_ranks is not None:
        return frozenset(range(scan.launch.train_ranks))
    return frozenset(max(ranks.values(), key=len, default=()))


def since_last(ended: AllEnded, times: Timeline) -> Ended:
    """What ended after the last rollout was written: of later rollouts, or, where nobody knew the rollout, later."""
    last, resumed = times.last, bool(times.leftover)
    written_at = None if last is None or times.copied else times.rollouts.get(last)
    found = Ended()
    for rollout_id, one in ended.by_rollout.items():
        of_before = resumed and written_at is not None and one.ended is not None and one.ended < written_at
        if (last is None or rollout_id > last) and not of_before:
            found.scored += one.scored
            found.discarded += one.discarded
            found.groups |= one.groups
            found.ended = max((t for t in (found.ended, one.ended) if t is not None), default=None)
    for line in ended.loose:
        if written_at is None or line.time is None or line.time > written_at:
            found.add_loose(line)
    return found


def _by_time(ended: AllEnded, times: Timeline) -> dict[int, Ended]:
    """Lines without a rollout go to the first dump that was written after them."""
    if not ended.loose or times.copied:
        return {}
    order = sorted((time, step) for step, time in times.rollouts.items() if step not in times.leftover)
    found: dict[int, Ended] = {}
    place = 0
    for line in ended.loose:
        if line.time is None:
            continue
        while place < len(order) and order[place][0] < line.time:
            place += 1
        if place < len(order):
            found.setdefault(order[place][1], Ended()).add_loose(line)
    return {step: one for step, one in found.items() if step not in ended.by_rollout}


def _step(
    rollout_id: int,
    dump: SampleSummary | None,
    trained: Sequence[TrainSummary],
    ended: Ended,
    ranks: tuple[int, ...],
    expected: frozenset[int],
    times: Timeline,
) -> Step:
    written_at = None if times.copied else times.rollouts.get(rollout_id)
    last_rank = max((times.training[rollout_id, rank] for rank in ranks), default=None)
    rollout_over = _earlier(ended.ended, written_at)
    statuses, discarded = _statuses(dump, ended)
    total = sum(statuses.values())
    return Step(
        rollout_id=rollout_id,
        exit_statuses=statuses,
        discarded=discarded,
        never_ran=statuses.get(NEVER_RAN, 0) / total if total else None,
        ranks=ranks,
        ranks_missing=tuple(sorted(expected - set(ranks))),
        rollout_seconds=_rollout_seconds(rollout_id, ended, written_at, times),
        training_seconds=None if times.copied else _between(rollout_over, last_rank),
        written_at=written_at,
        leftover=rollout_id in times.leftover,
        **(_of_dump(dump) if dump is not None else _of_training(trained)),
    )


def _rollout_seconds(rollout_id: int, ended: Ended, written_at: float | None, times: Timeline) -> float | None:
    """From the first trajectory's start to the last one's end; without outcomes, from the training before on."""
    if ended.began is not None and ended.ended is not None and ended.ended > ended.began:
        return ended.ended - ended.began
    return None if times.copied else _between(times.trained.get(rollout_id - 1), written_at)


def _statuses(dump: SampleSummary | None, ended: Ended) -> tuple[dict[str, int], int]:
    """Exit statuses of all trajectories and how many were discarded.

    Outcomes hold every trajectory; where there are fewer than in the dump, only their discards are more than it has.
    """
    kept = Counter(dump.statuses if dump is not None else {})
    lost = [Counter(one) for one in (ended.discarded, dump.lost if dump else {}, dump.aborted if dump else {})]
    discards = max(lost, key=lambda one: one.total())
    scored = ended.scored if ended.scored.total() >= kept.total() else kept
    return dict((scored + discards).most_common()), discards.total()


def _of_dump(dump: SampleSummary) -> dict[str, Any]:
    return {
        "trajectories": dump.trajectories,
        "reward_mean": dump.reward_mean,
        "reward_std": dump.reward_std,
        "solved": dump.solved / dump.scored if dump.scored > 0 else None,
        "groups": dump.groups,
        "groups_with_signal": dump.groups_with_signal,
        "truncated": dump.truncated,
        "tokens": dump.tokens / dump.trajectories if dump.trajectories > 0 else None,
        "turns": dump.turns / dump.turns_reported if dump.turns_reported > 0 else None,
    }


def _of_training(trained: Sequence[TrainSummary]) -> dict[str, Any]:
    """Ranks that share samples share them evenly, so means hold; groups are not known from train dumps."""
    samples, rewards = (sum(part) for part in zip(*((one.samples, one.rewards) for one in trained), strict=True))
    mean = sum(one.reward_sum for one in trained) / rewards if rewards > 0 else None
    square = sum(one.reward_squares for one in trained) / rewards if rewards > 0 else None
    return {
        "trajectories": samples,
        "reward_mean": mean,
        "reward_std": None if mean is None or square is None else math.sqrt(max(0.0, square - mean * mean)),
        "solved": sum(one.solved for one in trained) / rewards if rewards > 0 else None,
        "groups": 0,
        "groups_with_signal": 0,
        "truncated": sum(one.truncated for one in trained),
        "tokens": sum(one.tokens for one in trained) / samples if samples > 0 else None,
        "turns": None,
    }


def _earlier(one: float | None, other: float | None) -> float | None:
    return min((time for time in (one, other) if time is not None), default=None)


def _between(start: float | None, end: float | None) -> float | None:
    return end - start if start is not None and end is not None and end >= start else None

"""What is wrong with a run and its files, each named with its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from progress.dump_summary import CUT_OFF, EMPTY, Oddity, SampleSummary
from progress.run_report import Finding, Kind
from progress.scan import Scan
from progress.step import Step
from progress.timeline import Timeline
from progress.trajectories_ended import AllEnded
from progress.words import in_words, listed, plural, stretches

FRESH = 60.0  # seconds; a file that is younger may still be written
_SHORT_GAP = 16  # rollouts that are named one by one
_MOST_FILES = 200  # bad files that are named one by one


def find(scan: Scan, steps: Sequence[Step], ended: AllEnded, times: Timeline, now: float) -> tuple[Finding, ...]:
    """Ordered by rollout; what belongs to none comes first."""
    found = [
        *_bad_files(scan, now),
        *_torn_outcomes(scan),
        *_gaps(scan),
        *_rewritten(scan, ended, times),
        *(finding for step in steps if (finding := _no_signal(step)) is not None),
        *(finding for step, dump in scan.rollouts.items() for finding in _oddities(step, dump)),
    ]
    return tuple(sorted(found, key=lambda one: (-1 if one.rollout_id is None else one.rollout_id, one.kind)))


def _bad_files(scan: Scan, now: float) -> Iterator[Finding]:
    for bad in scan.bad[:_MOST_FILES]:
        age = FRESH if bad.written_at is None else now - bad.written_at
        unfinished = bad.reason.startswith((CUT_OFF, EMPTY)) and age < FRESH
        being_written = f"; written {in_words(age)} ago, it may not be complete yet" if unfinished else ""
        yield Finding(Kind.UNREADABLE, bad.rollout_id, f"{bad.name} is skipped: {bad.reason}{being_written}")
    more = len(scan.bad) - _MOST_FILES
    if more > 0:
        yield Finding(Kind.UNREADABLE, None, f"{plural(more, 'more file')} skipped")


def _torn_outcomes(scan: Scan) -> Iterator[Finding]:
    for name, tally in scan.outcomes.items():
        if tally.torn > 0:
            yield Finding(Kind.UNREADABLE, None, f"{name}: {plural(tally.torn, 'line')} skipped, no JSON object")


def _gaps(scan: Scan) -> Iterator[Finding]:
    there = sorted(scan.folder.rollouts)
    for (_, before), (after, _) in pairwise(stretches(there)):
        # One stray name may claim a number a billion away: nothing here takes memory for each that is missing.
        missing = range(before + 1, after)
        which = listed(missing) if len(missing) <= _SHORT_GAP else f"{missing[0]} to {missing[-1]}"
        text = f"{plural(len(missing), 'rollout')} missing between {before} and {after}: {which}"
        for rollout_id in missing if len(missing) <= _SHORT_GAP else missing[:1]:
            yield Finding(Kind.GAP, rollout_id, text)


def _rewritten(scan: Scan, ended: AllEnded, times: Timeline) -> Iterator[Finding]:
    left = f"; {listed(times.leftover)} left from before" if times.leftover else ""
    for rollout_id in sorted(scan.replaced | times.again | times.untrained | (ended.repeated & scan.rollouts.keys())):
        if rollout_id in times.again:
            why = f"its dump is newer than that of rollout {min(times.leftover)}"
        elif rollout_id in ended.repeated:
            why = "its trajectories ended twice, in two processes"
        elif rollout_id in times.untrained:
            why = "its train dumps are older than it"
        else:
            why = "an earlier look saw another dump"
        yield Finding(Kind.REWRITTEN, rollout_id, f"rollout {rollout_id} was written again after a resume: {why}{left}")


def _no_signal(step: Step) -> Finding | None:
    if step.groups == 0 or step.groups_with_signal > 0:
        return None
    reward = "unknown" if step.reward_mean is None else f"{step.reward_mean:.3g}"
    text = f"rollout {step.rollout_id}: rewards are equal in each of {plural(step.groups, 'group')}, mean {reward}"
    return Finding(Kind.NO_SIGNAL, step.rollout_id, text)


def _oddities(rollout_id: int, dump: SampleSummary) -> Iterator[Finding]:
    for kind, oddity, what in (
        (Kind.NO_TRAINABLE_TOKEN, dump.no_trainable_token, "without a trainable token"),
        (Kind.MASK_LENGTH, dump.mask_length, "with a loss mask or log-probabilities unlike the response"),
        (Kind.REWARD_ON_ABORTED, dump.reward_on_aborted, "aborted and with a reward"),
        (Kind.UNREADABLE, dump.no_reward, "without a usable reward, left out of the means"),
    ):
        if oddity.count > 0:
            yield Finding(kind, rollout_id, _text(rollout_id, dump.samples, oddity, what))


def _text(rollout_id: int, samples: int, oddity: Oddity, what: str) -> str:
    more = ", ..." if oddity.count > len(oddity.examples) else ""
    return f"rollout {rollout_id}: {oddity.count} of {samples} samples {what} ({'; '.join(oddity.examples)}{more})"

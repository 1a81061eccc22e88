"""The verdict: does the run advance, and if not, why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from progress.run_report import Verdict
from progress.scan import Scan
from progress.settings import ReadSettings
from progress.step import Evaluation, Step
from progress.timeline import Timeline
from progress.trajectories_ended import Ended
from progress.words import in_words, listed, plural, shares

UNKNOWN_STEP = 3600.0  # seconds without a new file that stall a run of which no step time is known
WINDOW = 5  # steps without a learning signal, or all there are, that make a verdict
ABORTED = "Aborted"  # over-sampled trajectories end so at the end of every rollout: no failure
CONVINCING = 4  # discarded trajectories of two groups or more, while the last dump is young
CONVINCING_ALONE = 16  # of one group, which a broken task may have
MOSTLY = 0.5  # share of discards that explains why a stalled run does not advance


@dataclass(frozen=True)
class Situation:
    """Everything that a verdict is made of. `since`: trajectories that ended after the last rollout was written."""

    scan: Scan
    steps: Sequence[Step]
    evaluations: Sequence[Evaluation]
    times: Timeline
    since: Ended
    evaluated_at: float | None  # end of the last trajectory of an evaluation, Unix seconds
    last_outcome: float | None  # end of the last trajectory of training
    settings: ReadSettings
    num_rollout: int | None
    now: float

    @property
    def current(self) -> list[Step]:
        return [step for step in self.steps if not step.leftover]

    @property
    def stall_after(self) -> float:
        """Seconds without a new dump that make a run stalled."""
        settings, known = self.settings, self.times.step_seconds or self.longest_step
        return max(settings.stall_floor, settings.stall_factor * known if known else UNKNOWN_STEP)

    @property
    def longest_step(self) -> float:
        """Rollout and training of one step, seconds: all that is known before there are two; 0.0 for unknown."""
        return max((step.seconds or 0.0 for step in self.current), default=0.0)

    def age(self, time: float | None) -> float:
        return 0.0 if time is None else max(0.0, self.now - time)

    @property
    def silence(self) -> float:
        """Seconds since a dump was written or an evaluation's trajectory ended."""
        return min(self.age(time) for time in (self.times.newest, self.evaluated_at or self.times.newest))


def judge(situation: Situation) -> tuple[Verdict, str]:
    """The verdict and its reason, with the numbers that it rests on."""
    if not situation.current:
        return _without_steps(situation)
    for rule in (_finished, _trainer_stuck, _failing, _stalled, _no_signal, _advancing):
        answer = rule(situation)
        if answer is not None:
            verdict, reason = answer
            return verdict, reason + _of_copy(situation)
    raise AssertionError("the last rule answers always")


Answer = tuple[Verdict, str]


def _without_steps(situation: Situation) -> Answer:
    since, scan = situation.since, situation.scan
    if since.total:
        return _trajectories_only(situation)
    said = [f"no rollout has been written to {scan.folder.traces}"]
    if scan.folder.rollouts:
        first = next((bad.reason for bad in scan.bad if bad.written_at is not None), "")
        said = [f"none of {plural(len(scan.folder.rollouts), 'rollout dump')} can be read: {first}"]
    if situation.evaluations:
        last = situation.evaluations[-1]
        said.append(f"evaluation {last.rollout_id} is there ({in_words(situation.silence)} old)")
    if scan.launch.started_at is not None:
        said.append(f"launched {in_words(situation.age(scan.launch.started_at))} ago")
    return Verdict.NO_DATA, "; ".join(said)


def _trajectories_only(situation: Situation) -> Answer:
    since = situation.since
    failures = _failures(since)
    if failures is not None and not since.scored.total():
        return Verdict.FAILING, f"every trial so far is discarded ({failures}): no rollout was ever written"
    silence = situation.age(since.ended)
    seen = f"{plural(since.total, 'trajectory')} ended, the last {in_words(silence)} ago".replace("ys", "ies")
    if silence <= situation.stall_after:
        return Verdict.NO_DATA, f"no rollout is complete yet: {seen}"
    if failures is not None and _lost(since) >= MOSTLY * since.total:
        return Verdict.FAILING, f"no rollout was ever written: {seen}; discarded: {failures}"
    return Verdict.STALLED, f"no rollout was ever written: {seen}"


def _finished(situation: Situation) -> Answer | None:
    wanted, last = situation.num_rollout, situation.current[-1]
    if wanted is None or last.rollout_id < wanted - 1 or last.ranks_missing:
        return None
    reward = _reward_in_words(situation.current)
    without = (
        "" if any(step.groups_with_signal for step in situation.steps) else "; no group ever had a learning signal"
    )
    ago = in_words(situation.age(situation.times.newest))
    return Verdict.FINISHED, f"rollout {last.rollout_id} was the last of {wanted}, written {ago} ago{reward}{without}"


def _trainer_stuck(situation: Situation) -> Answer | None:
    """A rollout waits for its training. Where no rank has ever written, nothing says that any would."""
    current = situation.current
    if not any(step.ranks for step in situation.steps):
        return None
    # What a trainer went on from is not waiting for it, whatever ranks did not write.
    touched = max((step.rollout_id for step in current if step.ranks), default=-1)
    waiting = next((step for step in current if step.rollout_id >= touched and step.ranks_missing), None)
    if waiting is None:
        return None
    written = [situation.times.rollouts.get(waiting.rollout_id), *situation.times.training.values()]
    age = situation.age(max((time for time in written if time is not None), default=None))
    if age <= situation.stall_after:
        return None
    ranks = listed(waiting.ranks_missing)
    return Verdict.STALLED, (
        f"rollout {waiting.rollout_id} written, training of it missing rank{'s' * (len(waiting.ranks_missing) > 1)} "
        f"{ranks} of {waiting.ranks_expected}: the trainer is stuck; it wrote last {in_words(age)} ago, "
        f"{_step_in_words(situation)}"
    )


def _failing(situation: Situation) -> Answer | None:
    since = situation.since
    failures = _failures(since)
    if failures is None:
        return None
    stalled = situation.silence > situation.stall_after
    lost, last = _lost(since), situation.current[-1].rollout_id
    if not since.scored.total():
        several = lost >= CONVINCING and len(since.groups) != 1
        if stalled or several or lost >= CONVINCING_ALONE:
            return Verdict.FAILING, f"every trial since rollout {last} is discarded: {failures}"
        return None
    if stalled and lost >= MOSTLY * since.total:
        return Verdict.FAILING, (
            f"{_last_in_words(situation)}; of {since.total} trials since then {lost / since.total:.0%} are discarded: "
            f"{failures}"
        )
    return None


def _stalled(situation: Situation) -> Answer | None:
    if situation.silence <= situation.stall_after:
        return None
    said = _last_in_words(situation)
    missing = situation.current[-1].ranks_missing
    if missing:
        said += f"; training of it missing rank{'s' * (len(missing) > 1)} {listed(missing)}"
    since = situation.since
    if since.total:
        ago = f", the last {in_words(situation.age(since.ended))} ago" if since.ended is not None else ""
        said += f"; {since.total} trials ended since then{ago}"
    return Verdict.STALLED, said


def _no_signal(situation: Situation) -> Answer | None:
    window = [step for step in situation.current if step.groups][-WINDOW:]
    if not window or any(step.groups_with_signal for step in window):
        return None
    groups = sum(step.groups for step in window)
    known = [step.reward_mean for step in window if step.reward_mean is not None]
    mean = f"{sum(known) / len(known):.3g}" if known else "unknown"
    first, last = window[0].rollout_id, window[-1].rollout_id
    where = f"rollout {last}" if first == last else f"rollouts {first} to {last}"
    return Verdict.NO_SIGNAL, (
        f"rewards are equal within each of the {plural(groups, 'group')} of {where}, mean {mean}: nothing is learned"
    )


def _advancing(situation: Situation) -> Answer | None:
    last = situation.current[-1]
    of = f" of {situation.num_rollout}" if situation.num_rollout is not None else ""
    said = f"rollout {last.rollout_id}{of} written {in_words(situation.age(situation.times.newest))} ago"
    if last.ranks_missing:
        said += f", training of it missing {len(last.ranks_missing)} of {last.ranks_expected} ranks so far"
    lost = _lost(situation.since)
    now = f"; {lost} of {situation.since.total} trials since then discarded" if lost else ""
    return Verdict.ADVANCING, f"{said}, {_step_in_words(situation)}{_reward_in_words(situation.current)}{now}"


def _last_in_words(situation: Situation) -> str:
    last = situation.current[-1].rollout_id
    return f"last rollout {last} is {in_words(situation.silence)} old, {_step_in_words(situation)}"


def _step_in_words(situation: Situation) -> str:
    if situation.times.step_seconds is not None:
        return f"median step {in_words(situation.times.step_seconds)}"
    longest = situation.longest_step
    return f"a step takes {in_words(longest)}" if longest else "step time unknown"


def _reward_in_words(steps: Sequence[Step]) -> str:
    known = [step.reward_mean for step in steps if step.reward_mean is not None]
    if len(known) < 2:
        return f", reward {known[0]:.3f}" if known else ""
    some = min(3, len(known) // 2)
    first, last = sum(known[:some]) / some, sum(known[-some:]) / some
    of = f"mean of {some}" if some > 1 else "one rollout"
    return f", reward {first:.3f} at first and {last:.3f} now ({of} each)"


def _failures(since: Ended) -> str | None:
    counts = {status: count for status, count in since.discarded.items() if status != ABORTED}
    return f"{shares(counts)} of {sum(counts.values())}" if counts else None


def _lost(since: Ended) -> int:
    return since.discarded.total() - since.discarded[ABORTED]


def _of_copy(situation: Situation) -> str:
    if not situation.times.copied:
        return ""
    last = situation.last_outcome
    by_outcomes = f"; by the outcomes, the last trajectory ended {in_words(situation.age(last))} ago" if last else ""
    return f"; the dumps' times are equal or out of order, as a copy's are, and say nothing of steps{by_outcomes}"

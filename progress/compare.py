"""Several runs side by side: what each is, and how the others differ from the first at equal rollouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any, Final

from progress.overlay import MOST_RUNS
from progress.panels import finite
from progress.plot import run_name
from progress.run_report import RunReport
from progress.step import Step

LAST: Final = 3
"""Rollouts whose mean reward says where a run has come to."""

QUANTITIES: Final[Mapping[str, Callable[[Step], float | None]]] = {
    "reward_mean": lambda step: step.reward_mean,
    "solved": lambda step: step.solved,
    "signal_share": lambda step: step.signal_share,
    "discard_share": lambda step: step.discard_share,
    "tokens": lambda step: step.tokens,
    "seconds": lambda step: step.seconds,
}
"""What is compared, by the name that it has in `--json`; shares of 0 to 1, tokens of a trajectory."""


class CannotCompare(Exception):
    """The folders given are no two or more different runs; the message says why."""


@dataclass(frozen=True)
class Run:
    """One of the runs, A, B, ... by `letter`; `steps` by rollout id, without what an attempt before a resume left."""

    letter: str
    name: str
    report: RunReport
    steps: Mapping[int, Step]


@dataclass(frozen=True)
class Comparison:
    """`common`: the rollouts that all runs with steps have. `notes`: sentences on what does not compare."""

    runs: tuple[Run, ...]
    common: tuple[int, ...]
    notes: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """0 compared, 1 no rollout in common, 2 a run without any step."""
        if not all(run.steps for run in self.runs):
            return 2
        return 0 if self.common else 1

    def values(self, quantity: str, rollout_id: int) -> list[float | None]:
        """Of every run; None where it lacks the rollout or its files do not say."""
        found = [run.steps.get(rollout_id) for run in self.runs]
        return [None if step is None else finite(QUANTITIES[quantity](step)) for step in found]

    def means(self, quantity: str, last: int | None = None) -> list[float | None]:
        """Of every run, over the rollouts in common or the `last` of them.

        A rollout counts when its value is known of every run that has such values at all; None for the other runs.
        """
        rows = [self.values(quantity, rollout) for rollout in (self.common if last is None else self.common[-last:])]
        known = [any(row[place] is not None for row in rows) for place in range(len(self.runs))]
        whole = [row for row in rows if [value is not None for value in row] == known]
        columns = [[value for row in whole if (value := row[place]) is not None] for place in range(len(self.runs))]
        return [fmean(column) if column else None for column in columns]

    def as_dict(self) -> dict[str, Any]:
        """What `verify_progress.py compare --json` prints; differences are those of B, C, ... from A."""
        rows = {rollout: {name: self.values(name, rollout) for name in QUANTITIES} for rollout in self.common}
        return {
            "runs": [
                {
                    "letter": run.letter,
                    "name": run.name,
                    "folder": str(run.report.folder),
                    "verdict": run.report.verdict.value,
                    "reason": run.report.reason,
                    "rollouts": len(run.steps),
                }
                for run in self.runs
            ],
            "notes": list(self.notes),
            "means": {name: self.means(name) for name in QUANTITIES},
            "steps": [
                {
                    "rollout_id": rollout,
                    "values": values,
                    "differences": {name: differences(of_runs) for name, of_runs in values.items()},
                }
                for rollout, values in rows.items()
            ],
        }


def compare_runs(reports: Sequence[RunReport]) -> Comparison:
    """The first run against the others. Raises CannotCompare."""
    if not 2 <= len(reports) <= MOST_RUNS:
        raise CannotCompare(f"{len(reports)} folder(s) given: compare takes 2 to {MOST_RUNS} runs")
    folders = [report.folder.resolve() for report in reports]
    for place, folder in enumerate(folders):
        if folder in folders[:place]:
            raise CannotCompare(f"{folder} is given twice: compare takes different runs")
    runs = tuple(
        Run(chr(ord("A") + place), name, report, {s.rollout_id: s for s in report.steps if not s.leftover})
        for place, (name, report) in enumerate(zip(_names(reports), reports, strict=True))
    )
    filled = [run for run in runs if run.steps]
    common = sorted(set(filled[0].steps).intersection(*(run.steps for run in filled))) if len(filled) > 1 else []
    return Comparison(runs, tuple(common), tuple(_notes(runs, filled, common)))


def differences(values: Sequence[float | None]) -> list[float | None]:
    """Those of all but the first from the first."""
    first = values[0]
    return [None if first is None or value is None else value - first for value in values[1:]]


def _names(reports: Sequence[RunReport]) -> list[str]:
    """The runs' own names, or their folders where two have the same."""
    names = [run_name(report.folder) for report in reports]
    return names if len(set(names)) == len(names) else [str(report.folder) for report in reports]


def _notes(runs: Sequence[Run], filled: Sequence[Run], common: Sequence[int]) -> list[str]:
    notes = [f"{run.letter} has no rollout to compare: {run.report.reason}" for run in runs if not run.steps]
    if len(filled) < 2:
        return notes
    if any(run.steps.keys() != filled[0].steps.keys() for run in filled):
        each = ", ".join(f"{run.letter} has {_span(run.steps)}" for run in filled)
        notes.append(f"{each}: {len(common)} in common")
    for what, size, consequence in (
        ("trajectories in a group", _group_size, "shares of groups with signal do not compare"),
        ("groups in a rollout", _groups, "an equal rollout is not an equal amount of data"),
    ):
        sizes = {run.letter: number for run in filled if (number := size(run)) is not None}
        if len(set(sizes.values())) > 1:
            each = ", ".join(f"{letter} {number:g}" for letter, number in sizes.items())
            notes.append(f"{what}: {each}; {consequence}")
    notes += [
        f"{run.letter} has no reward in any rollout in common"
        for run in filled
        if common and all(run.steps[rollout].reward_mean is None for rollout in common)
    ]
    return notes


def _span(steps: Mapping[int, Step]) -> str:
    first, last = min(steps), max(steps)
    missing = last - first + 1 - len(steps)
    return f"rollouts {first} to {last}" + (f" ({missing} missing)" if missing else "")


def _group_size(run: Run) -> float | None:
    sizes = [step.trajectories / step.groups for step in run.steps.values() if step.groups]
    return median(sizes) if sizes else None


def _groups(run: Run) -> float | None:
    counts = [step.groups for step in run.steps.values() if step.groups]
    return median(counts) if counts else None

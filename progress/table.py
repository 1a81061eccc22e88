"""The table of steps: which columns there are, and which of them a narrow terminal shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from local_engine.step_table import duration
from progress.step import Step

GAP = 2  # blanks between columns
_NONE = "-"


@dataclass(frozen=True)
class Column:
    """`rank` decides what a narrow terminal loses: the highest goes first. `bad` marks a cell to look at."""

    title: str
    rank: int
    cell: Callable[[Step, float], str]
    bad: Callable[[Step], bool] = lambda step: False


@dataclass(frozen=True)
class StepTable:
    """Cells of equal columns, a row for each step."""

    columns: tuple[Column, ...]
    widths: tuple[int, ...]
    rows: tuple[tuple[str, ...], ...]

    def lines(self) -> list[str]:
        """Header and rows as text, right-aligned."""
        header = tuple(column.title for column in self.columns)
        return [self.line(cells) for cells in (header, *self.rows)]

    def line(self, cells: Sequence[str]) -> str:
        return (" " * GAP).join(cell.rjust(width) for cell, width in zip(cells, self.widths, strict=True)).rstrip()


def step_table(steps: Sequence[Step], read_at: float, width: int | None = None) -> StepTable:
    """All columns, or those that fit into `width` characters. Ages are seen from `read_at`, Unix seconds."""
    columns = list(COLUMNS)
    while True:
        rows = tuple(tuple(column.cell(step, read_at) for column in columns) for step in steps)
        titles = tuple(column.title for column in columns)
        widths = tuple(max(map(len, cells)) for cells in zip(titles, *rows, strict=True))
        if width is None or sum(widths) + GAP * (len(widths) - 1) <= width or max(c.rank for c in columns) == 0:
            return StepTable(tuple(columns), widths, rows)
        columns.remove(max(columns, key=lambda column: column.rank))


def _number(value: float | None, digits: int) -> str:
    return _NONE if value is None else f"{value:.{digits}f}" if abs(value) < 1e6 else f"{value:.1e}"


def _share(value: float | None) -> str:
    return _NONE if value is None else f"{value:.0%}"


def _seconds(value: float | None) -> str:
    return _NONE if value is None else duration(value)


def _rollout(step: Step, read_at: float) -> str:
    return f"{step.rollout_id}{'*' if step.leftover else ''}"


def _age(step: Step, read_at: float) -> str:
    return _NONE if step.written_at is None else duration(max(0.0, read_at - step.written_at))


def _no_signal(step: Step) -> bool:
    return step.groups > 0 and step.groups_with_signal == 0


COLUMNS = (
    Column("rollout", 0, _rollout),
    Column("reward", 0, lambda step, _: _number(step.reward_mean, 3)),
    Column("spread", 7, lambda step, _: _number(step.reward_std, 3)),
    Column("solved", 2, lambda step, _: _share(step.solved)),
    Column("signal", 1, lambda step, _: f"{step.groups_with_signal}/{step.groups}", _no_signal),
    Column("discarded", 3, lambda step, _: str(step.discarded), lambda step: step.discarded > 0),
    Column("truncated", 8, lambda step, _: str(step.truncated)),
    Column("never ran", 9, lambda step, _: _share(step.never_ran), lambda step: bool(step.never_ran)),
    Column("turns", 10, lambda step, _: _number(step.turns, 1)),
    Column("tokens", 6, lambda step, _: _number(step.tokens, 0)),
    Column("rollout s", 5, lambda step, _: _seconds(step.rollout_seconds)),
    Column("training s", 5, lambda step, _: _seconds(step.training_seconds)),
    Column(
        "ranks", 4, lambda step, _: f"{len(step.ranks)}/{step.ranks_expected}", lambda step: bool(step.ranks_missing)
    ),
    Column("age", 1, _age),
)
LEGEND = (
    "reward: mean over trajectories, spread: its standard deviation. signal: groups whose rewards differ. "
    "tokens, turns: mean of a trajectory. ranks: trainer ranks that have written. *: of an attempt before a resume."
)

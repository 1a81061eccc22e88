"""A comparison of runs as text: a rich table on a terminal, aligned columns in a pipe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from progress.compare import LAST, Comparison, differences
from progress.visible import one_line

_ROWS: Final = 40  # of a terminal's table, the latest; a pipe and --json get all
_WIDE: Final = 3  # more runs than that have a table of rewards only

# The name in the tables, that in the comparison, digits, and whether it is a share, shown in percent.
_SHOWN: Final = (
    ("reward", "reward_mean", 3, False),
    ("solved", "solved", 0, True),
    ("signal", "signal_share", 0, True),
    ("discarded", "discard_share", 0, True),
    ("tokens", "tokens", 0, False),
    ("seconds", "seconds", 1, False),
)
_PER_STEP: Final = ("signal", "tokens", "seconds")


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Runs, notes, means over the rollouts in common, and a row for each of these."""
    for run in comparison.runs:
        line = f"{run.letter}  {one_line(run.name)}  {run.report.verdict}: {one_line(run.report.reason)}"
        console.print(Text(line), soft_wrap=True)
    for note in comparison.notes:
        console.print(Text(f"note: {one_line(note)}", style="yellow"), soft_wrap=True)
    if not comparison.common:
        console.print("no rollout in common: nothing to compare")
        return
    console.print()
    _print(console, f"mean over {len(comparison.common)} rollouts in common", *_means(comparison))
    console.print()
    header, rows = _steps(comparison)
    title = "at equal rollout"
    if console.is_terminal and len(rows) > _ROWS:
        title += f", the last {_ROWS} of {len(rows)} (all in a pipe or with --json)"
        rows = rows[-_ROWS:]
    _print(console, title, header, rows)


def _means(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    letters = [run.letter for run in comparison.runs]
    rows = [[name, *_cells(comparison.means(quantity), digits, percent)] for name, quantity, digits, percent in _SHOWN]
    last = min(LAST, len(comparison.common))
    rows.insert(1, [f"last {last}", *_cells(comparison.means("reward_mean", last), 3, percent=False)])
    return ["", *letters, *_minus(letters)], rows


def _steps(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    letters = [run.letter for run in comparison.runs]
    others = _minus(letters)
    wanted = _PER_STEP if len(letters) <= _WIDE else ()
    header = ["rollout", *(f"reward {letter}" for letter in letters)]
    header += [f"{name} {other}" for name in ("reward", *wanted) for other in others]
    rows: list[list[str]] = []
    for rollout in comparison.common:
        row = [str(rollout), *_cells(comparison.values("reward_mean", rollout), 3, percent=False)]
        for name, quantity, digits, percent in _SHOWN:
            if name in wanted:
                row += _cells(comparison.values(quantity, rollout), digits, percent)[len(letters) :]
        rows.append(row)
    return header, rows


def _minus(letters: Sequence[str]) -> list[str]:
    return [f"{letter}-{letters[0]}" for letter in letters[1:]]


def _cells(values: Sequence[float | None], digits: int, percent: bool) -> list[str]:
    """The values and their differences from the first."""

    def cell(value: float | None, sign: str = "", unit: str = "%") -> str:
        if value is None:
            return "-"
        return f"{value * 100:{sign}.{digits}f}{unit}" if percent else f"{value:{sign},.{digits}f}"

    # A share of 60% is 10 percentage points, not 10%, above one of 50%.
    return [*(cell(value) for value in values), *(cell(value, "+", " pp") for value in differences(values))]


def _print(console: Console, title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if not console.is_terminal:
        widths = [max(len(row[place]) for row in (header, *rows)) for place in range(len(header))]
        lines = [
            "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in (header, *rows)
        ]
        print("\n".join([title, *lines]), file=console.file)
        return
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="dim")
    for name in header:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console.print(table)

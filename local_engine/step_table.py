"""The columns of the step table: which fit, what stands in them, and the same facts as one plain line."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass
from itertools import pairwise

from rich.text import Text

from local_engine.step_row import StepRow

LEGEND = (
    "reward: mean over trajectories. signal: groups whose rewards differ. lost: discarded trajectories.\n"
    "cut: at the length limit. trials, train, other: where the time went. left: to the end of the run."
)
ASYNC_LEGEND = (
    "stale: updates that the weights of the sampler were behind, mean/largest. overlap: of train, sampling went on.\n"
    "trials: how long training waited for them."
)
REWARD_STYLE = "cyan"
HELDOUT_STYLE = "yellow"
_BAR_WIDTH = 6
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LEVELS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Column:
    """`rank` decides what a narrow terminal loses: the highest goes first."""

    title: str
    width: int
    rank: int
    cell: Callable[[StepRow], Text]


def duration(seconds: float) -> str:
    """`42s`, `3m10s`, `2h05m`; below ten seconds one decimal."""
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def bar(share: float, width: int = _BAR_WIDTH) -> str:
    """A horizontal bar of `width` cells for a share of 0 to 1, in eighths of a cell."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width)


def sparkline(values: list[float], width: int) -> str:
    """One character per value on a scale of 0 to 1; where there are more than `width`, means of neighbours."""
    if len(values) > width:
        bounds = [round(index * len(values) / width) for index in range(width + 1)]
        values = [sum(values[start:end]) / (end - start) for start, end in pairwise(bounds)]
    return "".join(_LEVELS[min(int(min(max(value, 0.0), 1.0) * 8), 7)] for value in values)


def _number(count: int) -> Text:
    return Text(str(count), style="" if count else "dim")


def _optional(value: float | None, digits: int, style: str = "") -> Text:
    return Text("·", style="dim") if value is None else Text(f"{value:.{digits}f}", style=style)


def _signal(row: StepRow) -> Text:
    return Text(f"{row.groups_with_signal}/{row.groups}", style="" if row.groups_with_signal else "bold magenta")


def _discarded(row: StepRow) -> Text:
    return Text(str(row.discarded), style="bold magenta" if row.discarded else "dim")


def _staleness(row: StepRow) -> Text:
    age = row.staleness
    return Text("·", style="dim") if age is None else Text(f"{age.mean:.1f}/{age.largest}")


def _overlap(row: StepRow) -> Text:
    share = overlap_share(row)
    return Text("·", style="dim") if share is None else Text(f"{share:.0%}")


def overlap_share(row: StepRow) -> float | None:
    """Of the training's time, in which the sampler computed as well; None where nothing was trained, or in turns."""
    if row.overlap_seconds is None or not row.train_seconds:
        return None
    return min(1.0, row.overlap_seconds / row.train_seconds)


def _seconds(value: float) -> Text:
    return Text(duration(value))


def _columns(num_rollout: int) -> list[Column]:
    id_width = max(7, len(str(num_rollout)))
    return [
        Column("rollout", id_width, 0, lambda row: Text(str(row.rollout_id), style="bold")),
        Column("reward", 6, 0, lambda row: Text(f"{row.reward_mean:.3f}")),
        Column("mean 3", 6, 1, lambda row: Text(f"{row.reward_moving:.3f}", style=f"bold {REWARD_STYLE}")),
        Column("", _BAR_WIDTH, 8, lambda row: Text(bar(row.reward_moving), style=REWARD_STYLE)),
        Column("held-out", 8, 2, lambda row: _optional(row.heldout, 3, f"bold {HELDOUT_STYLE}")),
        Column("signal", 6, 4, _signal),
        Column("lost", 4, 3, _discarded),
        Column("cut", 3, 9, lambda row: _number(row.truncated)),
        Column("tok/s", 5, 6, lambda row: Text(f"{row.tokens_per_second:.0f}")),
        Column("trials", 6, 5, lambda row: _seconds(row.rollout_seconds)),
        Column("train", 6, 5, lambda row: _seconds(row.train_seconds)),
        Column("other", 5, 10, lambda row: _seconds(row.other_seconds)),
        Column("grad", 5, 11, lambda row: _optional(row.grad_norm, 2)),
        Column("stale", 5, 3, _staleness),
        Column("overlap", 7, 7, _overlap),
        Column("kl", 6, 12, lambda row: _optional(row.kl, 4)),
        Column("left", 6, 1, lambda row: Text("·") if row.eta_seconds is None else _seconds(row.eta_seconds)),
    ]


def absent_columns(row: StepRow) -> frozenset[str]:
    """Titles of what this kind of run does not measure."""
    in_turns = ("stale", "overlap") if row.staleness is None else ()
    return frozenset((*in_turns, *(("kl",) if row.kl is None else ())))


class StepTable:
    """Rows of equal columns: those that fit into `width` characters, and `absent` ones have nothing to show."""

    def __init__(self, num_rollout: int, width: int, absent: Set[str]) -> None:
        self.absent = absent
        columns = [column for column in _columns(num_rollout) if column.title not in absent]
        while sum(column.width + 1 for column in columns) - 1 > width and max(column.rank for column in columns) > 0:
            columns.remove(max(columns, key=lambda column: column.rank))
        self.columns = columns

    def header(self) -> Text:
        return Text(" ").join(
            Text(column.title.rjust(column.width) if column.title else " " * column.width, style="dim underline")
            for column in self.columns
        )

    def row(self, row: StepRow) -> Text:
        cells: list[Text] = []
        for column in self.columns:
            cell = column.cell(row)
            cell.pad_left(max(0, column.width - cell.cell_len))
            cells.append(cell)
        return Text(" ").join(cells)


def plain_line(row: StepRow, num_rollout: int) -> str:
    """The row for a log file: every number named, one line."""
    parts = [
        f"rollout {row.rollout_id}/{num_rollout - 1}",
        f"reward {row.reward_mean:.3f}",
        f"mean3 {row.reward_moving:.3f}",
    ]
    if row.heldout is not None:
        parts.append(f"held-out {row.heldout:.3f}")
    parts += [
        f"signal {row.groups_with_signal}/{row.groups}",
        f"discarded {row.discarded}",
        f"truncated {row.truncated}",
        f"tokens {row.tokens}",
        f"tok/s {row.tokens_per_second:.0f}",
        f"rollout {row.rollout_seconds:.1f}s",
        f"train {row.train_seconds:.1f}s",
        f"other {row.other_seconds:.1f}s",
    ]
    if row.staleness is not None:
        parts.append(f"staleness {row.staleness.mean:.2f} max {row.staleness.largest}")
        parts.append(f"stale-groups {row.staleness.dropped_groups}")
    share = overlap_share(row)
    if share is not None:
        parts.append(f"overlap {share:.0%}")
    if row.kl is not None:
        parts.append(f"kl {row.kl:.4f}")
    if row.clip_fraction is not None:
        parts.append(f"clipped {row.clip_fraction:.3f}")
    if row.grad_norm is not None:
        parts.append(f"grad {row.grad_norm:.2f}")
    if row.eta_seconds is not None:
        parts.append(f"left {duration(row.eta_seconds)}")
    return "  ".join(parts)

"""Panels over a common axis of rollouts: curves with gaps, a title and a legend above each."""

# pyright: reportUnknownMemberType=false
# matplotlib leaves the keyword arguments of its drawing methods untyped.

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from local_engine.picture import Theme, blank_figure, plain_axes, stretches, write_png
from progress.visible import one_line, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Value = float | None

MARKED_STEPS: Final = 60  # more points than that are a line without marks
_LEFT, _RIGHT, _GAP = 0.075, 0.985, 84  # shares of the width; pixels between panels
_HEAD, _FOOT = 122, 62  # pixels
_LARGEST: Final = 1e15
_TALL: Final = 6.0  # medians; a panel does not grow for what is taller


class Panels:
    """A picture of stacked panels for rollouts `first` to `last`; all heights are in pixels."""

    def __init__(self, heights: Sequence[int], first: int, last: int, theme: Theme, head: int = _HEAD) -> None:
        self.theme = theme
        self._height = head + sum(heights) + _GAP * (len(heights) - 1) + _FOOT
        self.figure: Figure = blank_figure(self._height, theme)
        self.axes: list[Axes] = []
        margin = max(0.6, (last - first) * 0.015)
        top = self._height - head
        for height in heights:
            box = (_LEFT, (top - height) / self._height, _RIGHT - _LEFT, height / self._height)
            axes = self.figure.add_axes(box)
            plain_axes(axes, theme)
            axes.set_xlim(first - margin, last + margin)
            self.axes.append(axes)
            top -= height + _GAP
        self.axes[-1].set_xlabel("rollout", fontsize=9, color=theme.text)

    def head(self, title: str, subtitle: str) -> None:
        for text, below, size, weight, color in (
            (shortened_line(title, 80), 32, 13, "bold", self.theme.text),
            (shortened_line(subtitle, 116), 64, 9, "normal", self.theme.muted),
        ):
            place = (self._height - below) / self._height
            # A dollar sign of a folder's name is no formula.
            self.figure.text(
                _LEFT, place, text, fontsize=size, fontweight=weight, color=color, va="center", parse_math=False
            )

    def legend_of_runs(self, runs: Sequence[tuple[str, dict[str, Any]]]) -> None:
        """A line below the head for each (label, style of its curves), also of one without a curve."""
        from matplotlib.lines import Line2D

        self.figure.legend(
            handles=[Line2D([], [], label=label, linewidth=2.2, **style) for label, style in runs],
            loc="upper left",
            bbox_to_anchor=(_LEFT - 0.008, (self._height - 78) / self._height),
            frameon=False,
            fontsize=8.5,
            labelcolor=self.theme.text,
            handlelength=4,
        )

    def finish(self, axes: Axes, title: str, *, legend: bool = True) -> None:
        """Title and legend above the panel, where no curve is; a panel without curves says so."""
        axes.set_title(title, loc="left", fontsize=9.5, color=self.theme.text, pad=7, parse_math=False)
        handles, labels = axes.get_legend_handles_labels()
        if not axes.has_data():
            axes.text(0.5, 0.5, "no data", transform=axes.transAxes, ha="center", va="center", color=self.theme.muted)
            axes.set_yticks([])
            return
        if not legend:
            return
        axes.legend(
            handles,
            labels,
            loc="lower right",
            bbox_to_anchor=(1.005, 1.0),
            ncol=len(labels),
            frameon=False,
            fontsize=8.5,
            labelcolor=self.theme.text,
            handlelength=2.6,
            columnspacing=1.4,
            borderaxespad=0.2,
        )

    def png(self) -> bytes:
        """The picture as the bytes of a file."""
        file = io.BytesIO()
        with warnings.catch_warnings():
            # A folder may be named in a script that the font lacks: a box stands for each such letter.
            warnings.filterwarnings("ignore", message="Glyph .* missing")
            write_png(self.figure, file)
        return file.getvalue()


def curve(axes: Axes, steps: Sequence[int], values: Sequence[Value], **style: Any) -> None:
    """A line over the steps that have a value, broken where steps or values are missing; nothing where none has.

    `marker` marks every point while they are few, and otherwise only those that stand alone. Raises ValueError for
    lists of unequal length.
    """
    marker, size = style.pop("marker", None), style.pop("markersize", 3.4)
    known = [(step, value) for step, value in zip(steps, values, strict=True) if value is not None]
    if not known:
        return
    places, heights = [step for step, _ in known], [value for _, value in known]
    all_marked = marker if len(known) <= MARKED_STEPS else None
    alone = [start for start, end in stretches(places) if end - start == 1]
    if alone and all_marked is None:
        points: dict[str, Any] = {
            **style,
            "linestyle": "none",
            "label": "_",
            "marker": marker or "o",
            "markersize": size,
        }
        axes.plot([places[at] for at in alone], [heights[at] for at in alone], **points)
    line, (over,) = broken(places, [heights])
    axes.plot(line, over, marker=all_marked, markersize=size, **style)


def broken(
    steps: Sequence[int], columns: Sequence[Sequence[float]], half: float = 0.0
) -> tuple[list[float], list[list[float]]]:
    """`steps` and the columns of values over them, with NaN where steps are missing, which ends a line or an area.

    With `half` a step without neighbours has two points, so far to its left and right: an area needs a width.
    """
    line: list[float] = []
    over: list[list[float]] = [[] for _ in columns]
    for start, end in stretches(steps):
        wide = half > 0 and end - start == 1
        if line:
            line.append(math.nan)
        line += [steps[start] - half, steps[start] + half] if wide else steps[start:end]
        for found, column in zip(over, columns, strict=True):
            if found:
                found.append(math.nan)
            found += [column[start]] * 2 if wide else column[start:end]
    return line, over


def limit_height(axes: Axes, totals: Sequence[Value]) -> str:
    """Let the tallest of `totals` end above the panel where it dwarfs the others; answers what to say of that."""
    known = [total for total in totals if total is not None and total > 0]
    if not known:
        return ""
    most, usual = max(known), median(known)
    if most <= _TALL * usual:
        axes.set_ylim(0, most * 1.06)
        return ""
    axes.set_ylim(0, _TALL * usual)
    beyond = sum(total > _TALL * usual for total in known)
    return f"{beyond} of {len(known)} rollouts reach above the panel"


def legend_text(text: str, most: int) -> str:
    """`text` as a label: no formula, and not hidden for its first letter, as matplotlib does with `_`."""
    plain = shortened_line(text, most).replace("$", r"\$")
    return f" {plain}" if plain.startswith("_") else plain


def shortened_line(text: str, most: int) -> str:
    line = one_line(shortened(text))
    return line if len(line) <= most else f"{line[: most - 1]}…"


def time_unit(seconds: Sequence[Value]) -> tuple[float, str]:
    """Seconds of the unit that suits such values, and its name."""
    usual = median([value for value in seconds if value is not None] or [0.0])
    if usual < 180:
        return 1.0, "seconds"
    return (60.0, "minutes") if usual < 3 * 3600 else (3600.0, "hours")


def finite(value: Value) -> Value:
    """None for what no axis can show and no difference be taken of: NaN, infinities, numbers near the largest."""
    return value if value is not None and abs(value) < _LARGEST else None

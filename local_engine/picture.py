"""What the pictures of runs share: size, colours, axes, lines with gaps."""

# pyright: reportUnknownMemberType=false
# matplotlib leaves the keyword arguments of its drawing methods untyped.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 1200  # pixels
_DPI = 150


@dataclass(frozen=True)
class Theme:
    """Colours of a picture, told apart with every common form of colour blindness: Okabe and Ito's palette.

    `curves` are in the order of use; where colours meet in one panel, line style and marker differ too.
    """

    paper: str
    text: str
    muted: str
    grid: str
    axis: str
    curves: tuple[str, ...]


LIGHT = Theme(
    paper="white",
    text="#333333",
    muted="#666666",
    grid="#E5E5E5",
    axis="#BBBBBB",
    curves=("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"),
)
DARK = Theme(
    paper="#15171A",
    text="#DDDDDD",
    muted="#9A9A9A",
    grid="#2C2F34",
    axis="#5A5E64",
    curves=("#56B4E9", "#E69F00", "#2BC89B", "#E39AC4", "#F0E442", "#8FB8FF", "#FFFFFF"),
)


def moving_mean(values: Sequence[float], window: int = 3) -> list[float]:
    """Mean of each value and up to `window - 1` before it; as long as `values`."""
    return [sum(part) / len(part) for end in range(1, len(values) + 1) if (part := values[max(0, end - window) : end])]


def stretches(steps: Sequence[int]) -> list[tuple[int, int]]:
    """Index ranges [start, end) of consecutive steps."""
    breaks = [index + 1 for index, (step, following) in enumerate(pairwise(steps)) if following != step + 1]
    bounds = [0, *breaks, len(steps)]
    return [(start, end) for start, end in pairwise(bounds) if end > start]


def blank_figure(height: int, theme: Theme = LIGHT) -> Figure:
    """An empty picture, WIDTH x `height` pixels."""
    # Here and without pyplot: drawing neither costs a run's start anything nor changes a backend someone else uses.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH / _DPI, height / _DPI), dpi=_DPI, facecolor=theme.paper)
    FigureCanvasAgg(figure)
    return figure


def plain_axes(axes: Axes, theme: Theme = LIGHT) -> None:
    """Nothing but horizontal lines and a floor; whole steps below it."""
    from matplotlib.ticker import MaxNLocator

    axes.set_facecolor(theme.paper)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=10, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
    axes.grid(axis="y", color=theme.grid, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=theme.text, labelsize=9, length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(theme.axis)


def write_png(figure: Figure, file: BinaryIO) -> None:
    figure.savefig(file, format="png", dpi=_DPI)

"""The picture of several runs over each other, a curve for each in every panel."""

# pyright: reportUnknownMemberType=false
# matplotlib leaves the keyword arguments of its drawing methods untyped.

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from disk.atomic_file import atomic_file
from local_engine.picture import LIGHT, Theme
from progress.panels import Panels, Value, curve, finite, legend_text, limit_height, time_unit
from progress.plot import smooth, smoothing
from progress.run_report import RunReport
from progress.step import Step

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_RUNS: Final = len(LIGHT.curves)

_HEIGHTS: Final = (430, 200, 200, 200, 200)
_LINES: Final = ("-", (0, (6, 2)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)), (0, (3, 1)), (0, (9, 2, 2, 2)), (0, (2, 3)))
_MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")
_LEGEND_LINE: Final = 28  # pixels
_LONG: Final = 200  # rollouts; single ones of several longer runs hide each other


def plot_overlay(path: Path, runs: Sequence[tuple[str, RunReport]], theme: Theme = LIGHT) -> None:
    """Draw `path` (PNG, 1200 pixels wide) of (name, run) pairs, at most MOST_RUNS of them.

    A picture of the same name is replaced only when it is complete. Raises OSError.
    """
    steps = [[step for step in report.steps if not step.leftover] for _, report in runs]
    ids = [step.rollout_id for of_run in steps for step in of_run]
    head = 138 + _LEGEND_LINE * len(runs)
    panels = Panels(_HEIGHTS, min(ids, default=0), max(ids, default=1), theme, head)
    window = max((smoothing(len(of_run)) for of_run in steps), default=3)
    single = all(len(of_run) <= _LONG for of_run in steps)
    panels.head(f"{len(runs)} runs", f"mean of {window} rollouts" + (", thin: each rollout" if single else ""))
    reward, signal, discards, seconds, tokens = panels.axes
    all_seconds = [value for of_run in steps for step in of_run if (value := finite(step.seconds)) is not None]
    factor, unit = time_unit(all_seconds)
    quantities: tuple[tuple[Axes, Callable[[Step], Value]], ...] = (
        (reward, lambda step: step.reward_mean),
        (signal, lambda step: step.signal_share),
        (discards, lambda step: step.discard_share),
        (seconds, lambda step: None if step.seconds is None else step.seconds / factor),
        (tokens, lambda step: step.tokens),
    )
    labels: list[tuple[str, dict[str, Any]]] = []
    for number, ((name, report), of_run) in enumerate(zip(runs, steps, strict=True)):
        style = {"color": theme.curves[number], "linestyle": _LINES[number], "marker": _MARKERS[number]}
        labels.append((legend_text(f"{name}: {report.verdict}, {len(of_run)} rollouts", 110), style))
        ids_of_run = [step.rollout_id for step in of_run]
        for axes, value in quantities:
            values = [finite(value(step)) for step in of_run]
            if single:
                curve(axes, ids_of_run, values, color=theme.curves[number], linewidth=0.7, alpha=0.4)
            curve(axes, ids_of_run, smooth(values, window), linewidth=2.2, markersize=4.5, **style)
    panels.legend_of_runs(labels)
    low, high = reward.get_ylim()
    reward.set_ylim(min(low, -0.02), max(high, 1.04))
    for axes in (signal, discards):
        axes.set_ylim(-0.03, 1.05)
        axes.set_yticks([0, 0.5, 1], ["0%", "50%", "100%"])
    tokens.set_ylim(bottom=0)
    said = limit_height(seconds, [value / factor for value in all_seconds])
    titles = (
        (reward, "Mean reward"),
        (signal, "Groups with signal"),
        (discards, "Discarded trajectories"),
        (seconds, f"Time of a step, {unit}" + (f" ({said})" if said else "")),
        (tokens, "Response tokens of a trajectory, mean"),
    )
    for axes, title in titles:
        panels.finish(axes, title, legend=False)
    picture = panels.png()
    with atomic_file(path) as file:
        file.write(picture)

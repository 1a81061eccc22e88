"""The picture of one run: reward, shares of signal and discards, where the time goes, tokens of a trajectory."""

# pyright: reportUnknownMemberType=false
# matplotlib leaves the keyword arguments of its drawing methods untyped.

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from disk.atomic_file import atomic_file
from local_engine.picture import LIGHT, Theme, moving_mean, stretches
from progress.panels import MARKED_STEPS, Panels, Value, broken, curve, finite, limit_height, time_unit
from progress.run_report import RunReport
from progress.step import Step

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEIGHTS: Final = (430, 230, 230, 230)
_LONG: Final = 200  # rollouts; the spread of single ones is noise in the picture of a longer run
_BAND: Final = 0.18  # opacity


def plot_run(path: Path, report: RunReport) -> None:
    """Draw `path` (PNG, 1200 pixels wide), in place of a picture of the same name only when it is complete.

    Raises OSError.
    """
    picture = run_png(report)
    with atomic_file(path) as file:
        file.write(picture)


def run_png(report: RunReport, theme: Theme = LIGHT) -> bytes:
    """The picture as the bytes of a PNG file, for any number of rollouts, none included."""
    steps = [step for step in report.steps if not step.leftover]
    ids = [*(step.rollout_id for step in report.steps), *(e.rollout_id for e in report.evaluations)]
    panels = Panels(HEIGHTS, min(ids, default=0), max(ids, default=1), theme)
    panels.head(run_name(report.folder), f"{report.verdict}: {report.reason}")
    reward, shares, seconds, tokens = panels.axes
    _reward(reward, steps, report, theme)
    panels.finish(reward, "Mean reward")
    _shares(shares, steps, theme)
    panels.finish(shares, "Shares")
    unit, said = _seconds(seconds, steps, theme)
    panels.finish(seconds, f"Time of a step, {unit}" + (f" ({said})" if said else ""))
    _tokens(tokens, steps, theme)
    panels.finish(tokens, "Response tokens of a trajectory, mean")
    _leftovers(panels, [step for step in report.steps if step.leftover])
    return panels.png()


def run_name(folder: Path) -> str:
    """How a person calls the run: a traces folder has its save folder's name."""
    whole = folder.absolute()
    return whole.parent.name if whole.name == "traces" and whole.parent.name else whole.name or str(whole)


def smoothing(steps: int) -> int:
    """Rollouts of which the moving average is taken: three, and more in a long run."""
    return max(3, round(steps / 40))


def smooth(values: Sequence[Value], window: int) -> list[Value]:
    """Moving mean of the values that there are, in the places where they are."""
    known = [(place, value) for place, value in enumerate(values) if value is not None]
    result: list[Value] = [None] * len(values)
    for (place, _), mean in zip(known, moving_mean([value for _, value in known], window), strict=True):
        result[place] = mean
    return result


def _reward(axes: Axes, steps: Sequence[Step], report: RunReport, theme: Theme) -> None:
    ids = [step.rollout_id for step in steps]
    means = [finite(step.reward_mean) for step in steps]
    spreads = [finite(step.reward_std) for step in steps]
    window = smoothing(len(steps))
    averages = smooth(means, window)
    long = len(steps) > _LONG
    centres, widths = (averages, smooth(spreads, window)) if long else (means, spreads)
    band = [
        (step, centre - width, centre + width)
        for step, centre, width in zip(ids, centres, widths, strict=True)
        if centre is not None and width is not None
    ]
    found = [value for value in means if value is not None]
    evaluations = [(e.rollout_id, value) for e in report.evaluations if (value := finite(e.reward_mean)) is not None]
    measured = [*found, *(value for _, value in evaluations)]
    low, high = min([0.0, *measured]), max([1.0, *measured])
    if (low, high) != (0.0, 1.0):
        low, high = min([low, *(bottom for _, bottom, _ in band)]), max([high, *(top for _, _, top in band)])
    if band:
        columns = [max(low, bottom) for _, bottom, _ in band], [min(high, top) for _, _, top in band]
        line, (bottoms, tops) = broken([step for step, _, _ in band], columns, half=0.2)
        colour = theme.curves[0]
        axes.fill_between(line, bottoms, tops, color=colour, alpha=_BAND, linewidth=0, label="one std dev")
    raw: dict[str, Any] = {"color": theme.curves[5], "linewidth": 0.6 if long else 1.0, "alpha": 0.7 if long else 1.0}
    curve(axes, ids, means, marker="o", label="each rollout", zorder=2, **raw)
    label = f"mean of {window}"
    if found:
        label += f" (last: {[a for a in averages if a is not None][-1]:.2f})"
    curve(axes, ids, averages, color=theme.curves[0], linewidth=2.6, label=label, zorder=3)
    if evaluations:
        axes.plot(
            [place for place, _ in evaluations],
            [value for _, value in evaluations],
            color=theme.curves[1],
            linewidth=1.2,
            linestyle=(0, (4, 3)),
            marker="D",
            markersize=6,
            markeredgecolor=theme.paper,
            label=f"evaluation (last: {evaluations[-1][1]:.2f})",
            zorder=4,
        )
    axes.set_ylim(low - (high - low) * 0.02, high + (high - low) * 0.04)


def _leftovers(panels: Panels, steps: Sequence[Step]) -> None:
    """Rollouts of an attempt before a resume that has not come so far again: on grey, without a part in any mean."""
    if not steps:
        return
    theme, reward = panels.theme, panels.axes[0]
    ids = [step.rollout_id for step in steps]
    for start, end in stretches(ids):
        for axes in panels.axes:
            axes.axvspan(ids[start] - 0.5, ids[end - 1] + 0.5, color=theme.grid, zorder=0)
    curve(reward, ids, [finite(step.reward_mean) for step in steps], color=theme.muted, linewidth=1, marker="o")
    said = "grey: left over from before the resume"
    reward.text(0.995, 0.03, said, transform=reward.transAxes, ha="right", fontsize=8.5, color=theme.muted)


def _shares(axes: Axes, steps: Sequence[Step], theme: Theme) -> None:
    ids = [step.rollout_id for step in steps]
    truncated = [step.truncated / step.trajectories if step.trajectories else None for step in steps]
    for name, values, color, line, marker in (
        ("groups with signal", [step.signal_share for step in steps], theme.curves[0], "-", "o"),
        ("discarded", [step.discard_share for step in steps], theme.curves[1], (0, (5, 2)), "s"),
        ("truncated", truncated, theme.curves[3], (0, (1, 1.5)), "^"),
    ):
        shown = values if len(values) <= _LONG else smooth(values, smoothing(len(values)))
        curve(axes, ids, shown, color=color, linestyle=line, linewidth=1.6, marker=marker, label=name)
    axes.set_ylim(-0.03, 1.05)
    axes.set_yticks([0, 0.5, 1], ["0%", "50%", "100%"])


def _seconds(axes: Axes, steps: Sequence[Step], theme: Theme) -> tuple[str, str]:
    timed = [step for step in steps if finite(step.seconds) is not None]
    factor, unit = time_unit([step.seconds for step in timed])
    ids = [step.rollout_id for step in timed]
    rollout = [(step.rollout_seconds or 0.0) / factor for step in timed]
    training = [(step.training_seconds or 0.0) / factor for step in timed]
    both = [one + other for one, other in zip(rollout, training, strict=True)]
    parts = (("rollout", [0.0] * len(timed), rollout, 0, ""), ("training", rollout, both, 4, "////"))
    for name, bottom, top, color, hatch in parts:
        style: dict[str, Any] = {
            "facecolor": theme.curves[color],
            "edgecolor": theme.paper,
            "linewidth": 0.0,
            "hatch": hatch,
        }
        if len(timed) <= MARKED_STEPS:
            heights = [end - start for start, end in zip(bottom, top, strict=True)]
            if timed:
                # Bars of rollouts far apart would be thinner than a pixel.
                width = max(0.8, (ids[-1] - ids[0]) / 300)
                axes.bar(ids, heights, bottom=bottom, width=width, label=name, **style)
            continue
        line, (low, high) = broken(ids, [bottom, top], half=0.4)
        axes.fill_between(line, low, high, step="mid", label=name, **style)
    return unit, limit_height(axes, both)


def _tokens(axes: Axes, steps: Sequence[Step], theme: Theme) -> None:
    from matplotlib.ticker import EngFormatter

    ids, values = [step.rollout_id for step in steps], [finite(step.tokens) for step in steps]
    window = smoothing(len(steps))
    width = 0.6 if len(steps) > _LONG else 1.0
    curve(axes, ids, values, color=theme.curves[5], linewidth=width, marker="o", label="each rollout")
    curve(axes, ids, smooth(values, window), color=theme.curves[0], linewidth=2.2, label=f"mean of {window}")
    axes.set_ylim(0, max([1.0, *(value for value in values if value is not None)]) * 1.08)
    axes.yaxis.set_major_formatter(EngFormatter(sep=""))

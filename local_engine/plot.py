"""The picture of a run: reward of every rollout, its moving mean, and success on instances never trained on."""

# pyright: reportUnknownMemberType=false
# matplotlib leaves the keyword arguments of its drawing methods untyped.

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from disk.atomic_file import atomic_file
from local_engine.picture import LIGHT, blank_figure, moving_mean, plain_axes, stretches, write_png

_MOVING, _HELDOUT = LIGHT.curves[:2]
_REWARD = "#56B4E9"
_HEIGHT = 675


def reward_png(
    path: Path,
    steps: Sequence[int],
    rewards: Sequence[float],
    heldout: Sequence[tuple[int, float]],
    *,
    title: str = "Reward during training",
    subtitle: str = "",
    window: int = 3,
) -> None:
    """Draw `path` (PNG, 1200 x 675 pixels), in place of a picture of the same name only when it is complete.

    steps: 0-based rollout ids, rewards: their mean rewards. heldout: (number of rollouts trained before it, success
    of 0 to 1). A gap in `steps` is a gap in the lines. Raises OSError, and ValueError for lists of unequal length.
    """
    if len(steps) != len(rewards):
        raise ValueError(f"{len(steps)} steps and {len(rewards)} rewards: one reward per step is needed")
    figure = blank_figure(_HEIGHT)
    axes = figure.add_axes((0.085, 0.125, 0.885, 0.70))
    figure.text(0.085, 0.925, title, fontsize=14, fontweight="bold", color=LIGHT.text)
    figure.text(0.085, 0.868, subtitle, fontsize=9, color=LIGHT.muted)

    # The reward of rollout n was measured after n updates, which is also how held-out points are counted.
    means = moving_mean(rewards, window)
    for start, end in stretches(steps):
        label = "each rollout" if start == 0 else "_"
        axes.plot(steps[start:end], rewards[start:end], "o-", color=_REWARD, linewidth=1, markersize=3.2, label=label)
        label = f"mean of {window} rollouts (last: {means[-1]:.2f})" if start == 0 else "_"
        axes.plot(steps[start:end], means[start:end], color=_MOVING, linewidth=2.6, zorder=3, label=label)
    if heldout:
        places, successes = [place for place, _ in heldout], [success for _, success in heldout]
        axes.plot(
            places,
            successes,
            color=_HELDOUT,
            linewidth=1.2,
            linestyle=(0, (4, 3)),
            marker="D",
            markersize=7,
            markeredgecolor="white",
            markeredgewidth=1,
            zorder=4,
            label="success on held-out instances",
        )
        for place, success in (heldout[0], heldout[-1]) if len(heldout) > 1 else (heldout[0],):
            axes.annotate(
                f"{success:.2f}",
                (place, success),
                xytext=(0, 8 if success < 0.9 else -15),
                textcoords="offset points",
                ha="center",
                fontsize=9,
                fontweight="bold",
                color=_HELDOUT,
                zorder=5,
            )

    last = max([*steps, *(place for place, _ in heldout), 1])
    first = min([*steps, *(place for place, _ in heldout)], default=0)
    margin = max(0.5, (last - first) * 0.025)
    low = min([0.0, *rewards])
    high = max([1.0, *rewards])
    axes.set_xlim(first - margin, last + margin)
    axes.set_ylim(low - 0.02, high + (high - low) * 0.04)
    axes.set_xlabel("rollouts trained", fontsize=10, color=LIGHT.text)
    axes.set_ylabel("mean reward", fontsize=10, color=LIGHT.text)
    plain_axes(axes)
    if not steps and not heldout:
        axes.text(0.5, 0.5, "no rollout yet", transform=axes.transAxes, ha="center", color=LIGHT.muted)
    else:
        axes.legend(loc="lower right", frameon=False, fontsize=9, labelcolor=LIGHT.text, handlelength=2.2)

    with atomic_file(path) as file:
        write_png(figure, file)

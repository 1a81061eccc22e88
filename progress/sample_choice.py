"""Which trajectories of a long run a person is shown: the last step, and a few of steps all along the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from progress.recorded_trajectory import RecordedTrajectory
from progress.step import Step

_FEW: Final = 4  # trajectories of a step other than the last, where not all have room
_MOST_STEPS: Final = 16  # where not all have room; opening one of 32 x 32k tokens takes some seconds


def choose_steps(steps: Sequence[Step], most: int) -> list[tuple[int, int]]:
    """(rollout id, how many of its trajectories) in the order of interest, together at most `most` trajectories.

    The last step comes first, with up to half of the room or all of its trajectories; then the first one, those with
    the highest and the lowest mean reward, and steps evenly spaced over the run.
    """
    filled = [step for step in steps if step.trajectories and not step.leftover]
    if not filled or most < 1:
        return []
    if sum(step.trajectories for step in filled) <= most:
        return [(step.rollout_id, step.trajectories) for step in reversed(filled)]
    last = filled[-1]
    others = filled[:-1]
    chosen = [(last.rollout_id, min(last.trajectories, most if not others else max(1, most // 2)))]
    room = most - chosen[0][1]
    each = max(_FEW, -(-room // min(len(others), _MOST_STEPS - 1))) if others else 0
    for step in _in_order_of_interest(others, min(_MOST_STEPS - 1, -(-room // each) if each else 0)):
        count = min(step.trajectories, each, room)
        if count:
            chosen.append((step.rollout_id, count))
            room -= count
    return chosen


def choose_samples(trajectories: Sequence[RecordedTrajectory], most: int) -> list[RecordedTrajectory]:
    """At most `most`, in the order given: highest and lowest reward, one of every exit status, then the first ones."""
    if len(trajectories) <= most:
        return list(trajectories)
    scored = [place for place, one in enumerate(trajectories) if one.reward is not None]
    scored.sort(key=lambda place: trajectories[place].reward or 0.0)
    first_of: dict[str | None, int] = {}
    for place, one in enumerate(trajectories):
        first_of.setdefault(one.exit_status, place)
    wanted = [*scored[-1:], *scored[:1], *first_of.values(), *range(len(trajectories))]
    return [trajectories[place] for place in sorted(list(dict.fromkeys(wanted))[:most])]


def _in_order_of_interest(steps: Sequence[Step], count: int) -> list[Step]:
    """At most `count` of `steps`, each once."""
    if not steps or count < 1:
        return []
    scored = [step for step in steps if step.reward_mean is not None]
    scored.sort(key=lambda step: step.reward_mean or 0.0)
    places = max(1, count - 3)
    even = [steps[(2 * place + 1) * len(steps) // (2 * places)] for place in range(places)]
    wanted = [steps[0], *scored[-1:], *scored[:1], *even, *steps]
    return list({step.rollout_id: step for step in wanted}.values())[:count]

"""How much older than the trained weights those are that a group was sampled with.

A version is the number of updates that the weights have seen; a sample keeps one for each of its turns, that of the
turn's first token. As in Miles' fully asynchronous rollout a group is as old as its oldest turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

Group = Sequence[dict[str, Any]]  # the samples of one prompt


@dataclass(frozen=True)
class Staleness:
    """Of what one step trained on, in updates."""

    mean: float  # over trajectories, of each one's oldest turn
    largest: int
    mixed: float  # share of trajectories whose turns come from more than one version
    dropped_groups: int  # older than allowed, since the step before

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


def group_staleness(group: Group, version: int) -> int:
    """`version` is that of the weights that are trained; the group's oldest turn is so many updates behind."""
    return version - min(_oldest(sample) for sample in group)


def staleness_of(groups: Sequence[Group], version: int, dropped_groups: int) -> Staleness:
    """Over all trajectories of a step, every one with a turn."""
    samples = [sample for group in groups for sample in group]
    ages = [version - _oldest(sample) for sample in samples]
    mixed = sum(len(set(sample["weight_versions"])) > 1 for sample in samples)
    return Staleness(sum(ages) / len(ages), max(ages), mixed / len(samples), dropped_groups)


def _oldest(sample: dict[str, Any]) -> int:
    return min(int(version) for version in sample["weight_versions"])

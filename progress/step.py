"""One rollout and its training in numbers, as the dumps and outcomes on disk have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SOLVED = 1.0  # a reward from here on counts as solved


@dataclass(frozen=True)
class Step:
    """What is known of one rollout; None where the files do not say. Times in seconds, `written_at` as Unix time.

    A trajectory is what the trainer was given or lost: the samples of the dump that share a group and an index, and
    those discarded before the dump was written. Rewards are of the trajectories that were not aborted.
    """

    rollout_id: int  # 0-based, as in the names of the dumps
    trajectories: int  # in the dump, aborted ones included
    reward_mean: float | None
    reward_std: float | None  # of the whole population
    solved: float | None  # share with a reward of SOLVED or more
    groups: int
    groups_with_signal: int  # groups whose rewards are not all equal
    discarded: int  # trajectories that infrastructure cost, in the dump or not
    truncated: int  # trajectories cut off at a length limit
    never_ran: float | None  # share of all trajectories, discarded ones included
    tokens: float | None  # response tokens of a trajectory, mean
    turns: float | None  # of a trajectory, mean of those that report it
    exit_statuses: Mapping[str, int]  # trajectories, discarded ones included
    ranks: tuple[int, ...]  # trainer ranks that have written since this rollout was
    ranks_missing: tuple[int, ...]  # trainer ranks that should and have not
    rollout_seconds: float | None
    training_seconds: float | None
    written_at: float | None  # when the dump was written; None where the files carry times of a copy
    leftover: bool = False  # of an attempt before a resume that has not come so far again

    @property
    def trained(self) -> bool:
        """Whether every rank of the trainer has written."""
        return bool(self.ranks) and not self.ranks_missing

    @property
    def ranks_expected(self) -> int:
        return len(self.ranks) + len(self.ranks_missing)

    @property
    def seconds(self) -> float | None:
        """Rollout and training together, as far as known."""
        known = [part for part in (self.rollout_seconds, self.training_seconds) if part is not None]
        return sum(known) if known else None

    @property
    def signal_share(self) -> float | None:
        return self.groups_with_signal / self.groups if self.groups else None

    @property
    def discard_share(self) -> float | None:
        """Of all trajectories of this step; 1.0 where nothing but discards is left of it."""
        total = sum(self.exit_statuses.values())
        return min(1.0, self.discarded / total) if total else None

    def as_dict(self) -> dict[str, Any]:
        """The fields of `verify_progress.py --json`."""
        return {
            "rollout_id": self.rollout_id,
            "reward_mean": self.reward_mean,
            "reward_std": self.reward_std,
            "solved": self.solved,
            "groups": self.groups,
            "groups_with_signal": self.groups_with_signal,
            "discarded": self.discarded,
            "truncated": self.truncated,
            "never_ran": self.never_ran,
            "tokens": self.tokens,
            "turns": self.turns,
            "ranks_written": len(self.ranks),
            "ranks_expected": self.ranks_expected,
            "seconds": self.seconds,
        }


@dataclass(frozen=True)
class Evaluation:
    """One `eval_<id>.pt`: rewards of the weights that rollout `rollout_id` is sampled with."""

    rollout_id: int
    trajectories: int  # aborted ones left out
    reward_mean: float | None
    solved: float | None  # share with a reward of SOLVED or more
    written_at: float | None  # Unix seconds

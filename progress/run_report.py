"""What is found in the folder of a run: a verdict with its reason, the steps, and what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from progress.step import Evaluation, Step


class Verdict(StrEnum):
    """The answer in a word; `exit_code` is what the shell sees."""

    ADVANCING = "ADVANCING"
    FINISHED = "FINISHED"
    STALLED = "STALLED"
    FAILING = "FAILING"
    NO_SIGNAL = "NO SIGNAL"
    NO_DATA = "NO DATA"

    @property
    def exit_code(self) -> int:
        if self in (Verdict.ADVANCING, Verdict.FINISHED):
            return 0
        return 2 if self is Verdict.NO_DATA else 1


class Kind(StrEnum):
    """What can be wrong with a run or its files."""

    GAP = "gap"
    UNREADABLE = "unreadable"
    REWRITTEN = "rewritten"
    NO_SIGNAL = "no_signal"
    NO_TRAINABLE_TOKEN = "no_trainable_token"
    MASK_LENGTH = "mask_length"
    REWARD_ON_ABORTED = "reward_on_aborted"
    WANDB_GAP = "wandb_gap"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong; `rollout_id` is None where it belongs to no single rollout."""

    kind: Kind
    rollout_id: int | None
    text: str

    def as_dict(self) -> dict[str, Any]:
        return {"kind": self.kind.value, "rollout_id": self.rollout_id, "text": self.text}


@dataclass(frozen=True)
class RunReport:
    """One look at a run. `folder` holds the dumps; `read_at` is the Unix time of the look, which ages refer to."""

    folder: Path
    read_at: float
    verdict: Verdict
    reason: str
    last_rollout: int | None  # the rollout that was written last
    last_trained: int | None
    num_rollout: int | None  # how many the run is to make, where its launch file says it
    steps: tuple[Step, ...]  # by rollout_id
    evaluations: tuple[Evaluation, ...]  # by rollout_id
    exit_statuses: Mapping[str, int]  # trajectories of training, most frequent first
    findings: tuple[Finding, ...]

    @property
    def exit_code(self) -> int:
        return self.verdict.exit_code

    def as_dict(self) -> dict[str, Any]:
        """What `verify_progress.py --json` prints."""
        return {
            "verdict": self.verdict.value,
            "reason": self.reason,
            "last_rollout": self.last_rollout,
            "last_trained": self.last_trained,
            "steps": [step.as_dict() for step in self.steps],
            "exit_statuses": dict(self.exit_statuses),
            "findings": [finding.as_dict() for finding in self.findings],
        }

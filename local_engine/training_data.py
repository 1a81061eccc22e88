"""Samples of a rollout on their way into training, and what the trainer computed on its way to disk."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from local_engine.grpo import TrainSample, group_advantages
from local_engine.policy import Trajectory

Sample = dict[str, Any]


@dataclass
class TrainBatch:
    """Groups that carry signal, and every sample of the rollout with its normalised reward (0 without signal)."""

    groups: list[list[TrainSample]]
    samples: list[tuple[Sample, TrainSample, float]]

    @property
    def with_signal(self) -> int:
        return len(self.groups)


def make_train_batch(groups: Sequence[Sequence[Sample]]) -> TrainBatch:
    """groups: the rollout's complete groups, every sample scored."""
    kept: list[list[TrainSample]] = []
    every: list[tuple[Sample, TrainSample, float]] = []
    for group in groups:
        advantages = group_advantages([float(s["reward"]) for s in group])
        members = [
            TrainSample(
                Trajectory(s["tokens"], s["loss_mask"]),
                advantage,
                [p for p, m in zip(s["rollout_log_probs"], s["loss_mask"], strict=True) if m],
            )
            for s, advantage in zip(group, advantages or [0.0] * len(group), strict=True)
        ]
        if advantages is not None:
            kept.append(members)
        every += [(s, t, t.advantage) for s, t in zip(group, members, strict=True)]
    return TrainBatch(kept, every)


def train_dump(batch: TrainBatch) -> dict[str, list[Any]]:
    """The columns of Miles' `train_data` dump; per-token columns cover the response, 0 where masked.

    Samples without signal were not computed: their `log_probs` are those of the sampler.
    """
    columns: dict[str, list[Any]] = {
        name: []
        for name in (
            "tokens", "response_lengths", "rewards", "truncated", "loss_masks", "sample_indices", "rollout_log_probs",
            "weight_versions", "raw_reward", "total_lengths", "log_probs", "advantages", "returns",
        )
    }  # fmt: skip
    for sample, trained, advantage in batch.samples:
        mask = torch.tensor(sample["loss_mask"], dtype=torch.int32)
        rollout = torch.tensor(sample["rollout_log_probs"], dtype=torch.float32)
        log_probs = rollout.clone()
        if trained.log_probs is not None:
            log_probs[mask.bool()] = trained.log_probs.float().cpu()
        per_token = torch.full((len(mask),), advantage, dtype=torch.float32)
        values: dict[str, Any] = {
            "tokens": torch.tensor(sample["tokens"], dtype=torch.long),
            "response_lengths": sample["response_length"],
            "rewards": advantage,
            "truncated": int(sample["status"] == "truncated"),
            "loss_masks": mask,
            "sample_indices": sample["index"],
            "rollout_log_probs": rollout,
            "weight_versions": sample["weight_versions"],
            "raw_reward": float(sample["reward"]),
            "total_lengths": len(sample["tokens"]),
            "log_probs": log_probs,
            "advantages": per_token,
            "returns": per_token.clone(),
        }
        for name, value in values.items():
            columns[name].append(value)
    return columns

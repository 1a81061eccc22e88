"""Dumps of the run on a real GPU (tests/data/gpu_run/ORIGIN.md): what Miles and our hooks made of real trials."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch

RUN = Path(__file__).parent / "data" / "gpu_run"
ROLLOUTS = (0, 1)


def samples(rollout_id: int) -> list[dict[str, Any]]:
    return torch.load(RUN / "rollout_data" / f"{rollout_id}.pt", weights_only=True)["samples"]


def trained(rollout_id: int) -> dict[str, Any]:
    path = RUN / "train_data" / f"{rollout_id}_0.pt"
    return torch.load(path, map_location="cpu", weights_only=True)["rollout_data"]


def outcomes(rollout_id: int) -> list[dict[str, Any]]:
    lines = [json.loads(line) for path in RUN.glob("outcomes/*.jsonl") for line in path.read_text().splitlines()]
    return [line for line in lines if line["rollout_id"] == rollout_id]


@pytest.mark.parametrize("rollout_id", ROLLOUTS)
def test_the_tokens_of_a_sample_are_those_that_its_session_sampled(rollout_id: int) -> None:
    for sample in samples(rollout_id):
        assert sample["tokens"] == sample["metadata"]["accumulated_token_ids"]
        assert sample["metadata"]["tito_session_mismatch"] == []


@pytest.mark.parametrize("rollout_id", ROLLOUTS)
def test_the_loss_mask_covers_the_turns_of_the_model_and_nothing_between_them(rollout_id: int) -> None:
    for sample in samples(rollout_id):
        mask, log_probs = sample["loss_mask"], sample["rollout_log_probs"]
        assert len(mask) == len(log_probs) == sample["response_length"]
        assert [own for own, _ in itertools.groupby(mask)].count(1) == sample["metadata"]["agent_metrics"]["turns"]
        assert all(log_prob == 0 for log_prob, own in zip(log_probs, mask, strict=True) if not own)


@pytest.mark.parametrize("rollout_id", ROLLOUTS)
def test_log_probabilities_of_the_engine_and_of_the_trainer_agree(rollout_id: int) -> None:
    data = trained(rollout_id)
    parts = zip(data["rollout_log_probs"], data["log_probs"], data["loss_masks"], strict=True)
    apart = torch.cat([(engine - trainer).abs()[mask.bool()] for engine, trainer, mask in parts])
    assert apart.mean() < 0.002 and apart.max() < 0.1


@pytest.mark.parametrize("rollout_id", ROLLOUTS)
def test_a_discarded_trial_drops_its_group_and_not_the_run(rollout_id: int) -> None:
    dropped = {line["group_index"] for line in outcomes(rollout_id) if line["discard"]}
    kept = [sample["group_index"] for sample in samples(rollout_id)]
    assert len(dropped) == 2 and not dropped & set(kept)
    assert sorted(kept) == sorted(4 * [*set(kept)] * 2) and len(kept) == 32
    assert all(type(sample["reward"]) is float for sample in samples(rollout_id))


def test_the_second_rollout_is_sampled_with_new_weights() -> None:
    for rollout_id, version in zip(ROLLOUTS, ("1", "2"), strict=True):
        assert {seen for sample in samples(rollout_id) for seen in sample["weight_versions"]} == {version}

"""Dumps of the run on a real GPU (tests/data/gpu_run/ORIGIN.md): what Miles and our hooks made of real trials."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from launcher.scripts import ROOT

RUN = Path(__file__).parent / "data" / "gpu_run"
TWO_GPUS = Path(__file__).parent / "data" / "gpu_run_two"
ASYNCHRONOUS = Path(__file__).parent / "data" / "gpu_run_async"
ROLLOUTS = (0, 1)


def samples(rollout_id: int, run: Path = RUN) -> list[dict[str, Any]]:
    return torch.load(run / "rollout_data" / f"{rollout_id}.pt", weights_only=True)["samples"]


def trained(rollout_id: int, run: Path = RUN, rank: int = 0) -> dict[str, Any]:
    path = run / "train_data" / f"{rollout_id}_{rank}.pt"
    return torch.load(path, map_location="cpu", weights_only=True)["rollout_data"]


def differences(data: dict[str, Any]) -> torch.Tensor:
    """Of the model's tokens, in nats, between the engine that sampled them and the trainer."""
    parts = zip(data["rollout_log_probs"], data["log_probs"], data["loss_masks"], strict=True)
    return torch.cat([(engine - trainer).abs()[mask.bool()] for engine, trainer, mask in parts])


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
    apart = differences(trained(rollout_id))
    assert apart.mean() < 0.002 and apart.max() < 0.1


@pytest.mark.parametrize("rank", [0, 1])
def test_log_probabilities_agree_with_tensor_and_expert_parallel_2(rank: int) -> None:
    apart = differences(trained(1, TWO_GPUS, rank))
    assert len(apart) == 860 and apart.mean() < 0.001 and apart.max() < 0.1


def test_both_ranks_of_a_tensor_parallel_group_trained_on_the_same_trajectories() -> None:
    first, second = (trained(1, TWO_GPUS, rank) for rank in (0, 1))
    for name in ("tokens", "loss_masks", "advantages", "log_probs"):
        for one, other in zip(first[name], second[name], strict=True):
            assert torch.equal(one, other), name


def test_the_dumps_of_two_ranks_finish_the_run(tmp_path: Path) -> None:
    shutil.copytree(TWO_GPUS, tmp_path, dirs_exist_ok=True)  # what was read is kept beside the dumps
    finished = subprocess.run(
        [sys.executable, "verify_progress.py", str(tmp_path), "--json"], cwd=ROOT, capture_output=True, text=True
    )
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout)["verdict"] == "FINISHED"


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


def test_sessions_of_several_servers_keep_the_sampled_tokens() -> None:
    stale = samples(3, ASYNCHRONOUS)
    assert len(stale) == 32
    for sample in stale:
        assert sample["tokens"] == sample["metadata"]["accumulated_token_ids"]
        assert sample["metadata"]["tito_session_mismatch"] == []


def test_samples_of_old_weights_differ_from_the_trainer_by_more_than_fresh_ones() -> None:
    assert {seen for sample in samples(3, ASYNCHRONOUS) for seen in sample["weight_versions"]} == {"1"}
    assert differences(trained(3, ASYNCHRONOUS)).mean() > 100 * differences(trained(0)).mean()

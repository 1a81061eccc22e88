"""Two steps of the real model on tasks made here, by the one command of the README."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.end_to_end.run_parts import ROOT
from tests.outcomes_on_disk import read_outcomes


@pytest.mark.long
@pytest.mark.timeout(900)
def test_two_steps_of_the_real_model(tmp_path: Path) -> None:
    """Half of the default size; the untrained model solves about a third, so that some group has signal."""
    save_dir = tmp_path / "run"
    sizes = "--num-rollout 2 --rollout-batch-size 4 --n-samples-per-prompt 6 --global-batch-size 24"
    tasks = "--families mkdir,copy,delete --train-tasks-per-family 4 --heldout-tasks-per-family 1 --eval-samples 2"
    argv = [sys.executable, "run.py", "--engine", "local", "--save-dir", str(save_dir), *sizes.split(), *tasks.split()]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=850)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in (save_dir / "metrics.jsonl").read_text().splitlines()]
    assert [row["rollout_id"] for row in rows] == [0, 1]
    assert any(row["groups_with_signal"] for row in rows)
    assert any(row["reward_mean"] > 0 for row in rows)
    # bfloat16 where it is used: sampler and trainer round differently, and not more than that.
    assert all(row["train_log_prob_gap"] < 0.1 for row in rows)
    lines = read_outcomes(save_dir / "traces")
    assert len(lines) == 2 * 24 + 2 * 6
    assert not [line for line in lines if line["discard"]]
    samples = torch.load(save_dir / "traces" / "rollout_data" / "1.pt", weights_only=True)["samples"]
    assert len(samples) == 24
    assert (save_dir / "model" / "model.safetensors").is_file()
    assert "held-out success" in done.stdout

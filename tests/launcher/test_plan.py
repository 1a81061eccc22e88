from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.local_run import build_config
from launcher.resolve import Resolved

KEYS = {
    "launcher", "engine", "run_id", "entrypoint", "arguments", "environment", "placement", "ports", "files", "memory",
    "notes",
}  # fmt: skip


def test_a_dry_run_prints_one_object_and_writes_nothing(launch: Callable[..., Any], tmp_path: Path) -> None:
    answer = launch("--engine", "local", "--dry-run", "--format", "json", "--save-dir", "s")
    plan = json.loads(answer.out)
    assert answer.code == 0
    assert set(plan) == KEYS
    assert plan["launcher"] == "run.py" and plan["engine"] == "local"
    assert all(isinstance(part, str) for part in plan["entrypoint"] + plan["arguments"] + plan["notes"])
    assert plan["files"]["traces"] == str(tmp_path / "s" / "traces")
    assert list(tmp_path.iterdir()) == []


def test_the_table_is_for_reading(launch: Callable[..., Any]) -> None:
    answer = launch("--engine", "local", "--dry-run")
    assert answer.code == 0
    assert "memory" in answer.out and "SmolLM2-135M-Instruct" in answer.out


@pytest.mark.parametrize(
    "flags",
    [
        "--save-dir s",
        "--save-dir s --full-finetune --dtype bfloat16",
        "--save-dir s --prompt-data r.jsonl --harbor-tasks-dir t --mode debug_rollout_only",
        "--save-dir s --families all --deterministic --seed 7",
        "--save-dir s --target-modules q_proj v_proj --extra-env-vars A=b C=d",
        "--save-dir s --agent-server-url http://h:1 --prompt-data r.jsonl --wandb-project p",
        "--save-dir s --num-gpus-per-node 0 --no-use-prometheus",
    ],
)
def test_the_printed_arguments_give_the_same_run_again(
    options_of: Callable[..., Resolved[Any]], plan_of: Callable[..., Any], flags: str
) -> None:
    plan = plan_of(*flags.split())
    first, _ = build_config(options_of("--engine", "local", *flags.split()), "id", {})
    again, _ = build_config(options_of(*plan["arguments"]), "id", {})
    assert again == first


def test_secrets_are_present_and_hidden(plan_of: Callable[..., Any]) -> None:
    plan = plan_of("--wandb-project", "p", WANDB_API_KEY="canary")
    assert plan["environment"]["WANDB_API_KEY"] == "***"
    assert "canary" not in json.dumps(plan)


def test_what_came_from_the_environment_is_said(plan_of: Callable[..., Any]) -> None:
    plan = plan_of(AGENT_MODEL_NAME="m", SLURM_JOB_NUM_NODES="4", MILES_HOST_IP="10.0.0.1")
    assert plan["placement"]["nodes"] == 1
    notes = " ".join(plan["notes"])
    assert "--agent-model-name comes from AGENT_MODEL_NAME" in notes
    assert "SLURM_JOB_NUM_NODES, MILES_HOST_IP" in notes

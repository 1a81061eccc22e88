from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launcher.miles.launch import plan_run
from launcher.miles.miles_preflight import (
    check_lifetimes,
    check_memory,
    check_rows,
    check_service,
    check_start,
    node_spec,
)
from launcher.miles.recipe import Recipe
from launcher.plan import Plan
from launcher.preflight import Status
from tests.launcher.miles.launchers import launcher


def planned(script: str, *flags: str, **environment: str) -> tuple[Plan, Recipe, Any]:
    chosen = launcher(script)
    resolved = chosen.resolved(flags, environment)
    plan, recipe = plan_run(chosen.program, resolved, chosen.recipe, chosen.find_start, environment)
    return plan, recipe, resolved.options


def test_a_tracker_without_its_checkpoint_fails(tmp_path: Path) -> None:
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("12")
    plan, _, _ = planned("sync", "--resume", "--save-dir", str(tmp_path))
    assert check_start(plan).status is Status.FAILURE
    (tmp_path / "iter_0000012").mkdir()
    assert check_start(plan).status is Status.FAILURE
    (tmp_path / "iter_0000012" / "common.pt").write_bytes(b"x")
    assert check_start(plan).status is Status.OK
    fresh, _, _ = planned("sync")
    assert check_start(fresh).status is Status.OK


def test_a_plan_that_does_not_fit_fails() -> None:
    assert check_memory(planned("lora", "--num-nodes", "1")[0]).status is Status.FAILURE
    assert check_memory(planned("lora")[0]).status is Status.OK


@pytest.mark.parametrize(("elsewhere", "status"), [(True, Status.WARNING), (False, Status.FAILURE)])
def test_rows_that_are_not_here_matter_where_the_run_is_here(tmp_path: Path, elsewhere: bool, status: Status) -> None:
    assert [finding.status for finding in check_rows(tmp_path / "rows.jsonl", 4, elsewhere)] == [status]


@pytest.mark.parametrize("name", ["sync", "lora"])
@pytest.mark.parametrize(("minutes", "status"), [("150", Status.OK), ("5", Status.FAILURE)])
def test_sandboxes_that_stop_during_a_trial_fail(name: str, minutes: str, status: Status) -> None:
    plan, _, _ = planned(name, "--extra-env-vars", f"SANDBOX_AUTO_STOP_MINUTES={minutes}")
    assert [finding.status for finding in check_lifetimes(plan.environment)] == [status]


def test_a_lifetime_that_the_agent_function_would_not_send_fails() -> None:
    plan, recipe, options = planned("lora", "--extra-env-vars", "SANDBOX_AUTO_STOP_MINUTES=2h")
    (finding,) = check_service(plan, recipe, options)
    assert finding.status is Status.FAILURE and "SANDBOX_AUTO_STOP_MINUTES='2h'" in finding.sentence
    assert check_lifetimes(plan.environment) == []
    assert check_lifetimes(planned("sync")[0].environment) == []


def test_nodes_are_asked_for_what_the_plan_takes() -> None:
    plan, recipe, options = planned("lora", AGENT_SERVER_TOKEN_FILE="/keys/agent")
    spec = node_spec(plan, recipe, options)
    assert spec.ports == {"session servers": (30001, 30032), "router": (31001, 31001), "Prometheus": (9091, 9091)}
    assert (spec.nodes, spec.gpus, spec.gib_per_gpu) == (4, 8, 119.3)
    assert spec.offload_dir == "/scratch/miles_train_offload"
    assert spec.offload_bytes == 372 * 2**30
    assert spec.key_files == {"AGENT_SERVER_TOKEN_FILE": "/keys/agent"}
    assert spec.way_back is not None and spec.way_back.token_file == "/keys/agent"
    assert {checkpoint.option for checkpoint in spec.checkpoints} == {"--hf-checkpoint", "--fp8-rollout-checkpoint"}
    assert not spec.wandb and spec.reference is None

    plan, recipe, options = planned("lora", "--mode", "debug_rollout_only", "--wandb-project", "p")
    spec = node_spec(plan, recipe, options)
    assert (spec.offload_dir, spec.save_bytes, spec.wandb) == (None, 0, True)

"""Plans of all launchers, in their documented shapes and variations, against files that a person has read.

`UPDATE_GOLDEN=1 pytest tests/launcher/miles/test_golden_plans.py` writes them anew; read the difference.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.miles.capabilities import grouped
from launcher.miles.launch import plan_run
from launcher.miles.placement import as_changed
from launcher.scripts import ROOT
from tests.launcher.miles import sources
from tests.launcher.miles.launchers import SCRIPTS, launcher

GOLDEN = ROOT / "tests" / "golden"
GPU = ROOT / "benchmarks" / "gpu"

# name -> launcher, flags, environment. TMP stands for a folder that the fixture fills.
CASES: dict[str, tuple[str, str, dict[str, str]]] = {
    "sync_documented": (
        "sync",
        "--num-nodes 1 --num-gpus-per-node 8 --rollout-batch-size 4 --n-samples-per-prompt 8 --global-batch-size 32 "
        "--max-seq-len 65536 --num-rollout 200 --save-interval 20 --router-external-host trainer.example "
        "--miles-host-ip 0.0.0.0 --save-traces-dir /root/traces --agent-server-url http://agent_env:11000",
        {},
    ),
    "sync_defaults": ("sync", "", {}),
    "sync_rollout_only": ("sync", "--mode debug_rollout_only", {}),
    "sync_resume_wandb": (
        "sync",
        "--resume --save-dir TMP/saved --save-traces-dir TMP/saved/traces",
        {"WANDB_API_KEY": "canary-key"},
    ),
    "sync_load_elsewhere": ("sync", "--load-dir TMP/saved --save-dir TMP/new --wandb-project p", {}),
    "sync_two_nodes": ("sync", "--num-nodes 2 --miles-host-ip 10.0.0.7", {"MASTER_ADDR": "10.0.0.7"}),
    "sync_four_gpus": ("sync", "--num-gpus-per-node 4 --skip-prepare --no-use-prometheus", {}),
    "sync_cluster_environment": (
        "sync",
        "--extra-env-vars A=b=c NCCL_NVLS_ENABLE=1",
        {
            "AGENT_SERVER_URL": "http://agents.example:9000",
            "AGENT_MODEL_NAME": "policy",
            "AGENT_TRIAL_TIMEOUT": "9000",
            "AGENT_SERVER_TOKEN_FILE": "/keys/agent",
            "HARBOR_TASKS_DIR": "/tasks",
            "NCCL_SOCKET_IFNAME": "eth1",
            "PYTHONPATH": "/plugins",
            "no_proxy": "registry.example",
        },
    ),
    "sync_august": ("sync", "--miles-path TMP/august --router-external-host trainer.example", {}),
    "sync_may": ("sync", "--miles-path TMP/may", {}),
    "sync_tiny_one_gpu": (
        "sync",
        f"--num-gpus-per-node 1 --miles-path TMP/may_package --model-shape {GPU}/model_shape.json "
        f"--argument-changes {GPU}/no_transformer_engine.json {GPU}/no_offloaded_optimizer.json "
        f"{GPU}/no_offload.json --skip-prepare",
        {},
    ),
    "sync_tiny_split": (
        "sync",
        f"--num-gpus-per-node 2 --miles-path TMP/may_package --model-shape {GPU}/model_shape.json "
        f"--argument-changes {GPU}/no_transformer_engine.json {GPU}/no_offloaded_optimizer.json "
        f"{GPU}/split.json --skip-prepare",
        {},
    ),
    "async_documented": ("async", "--num-nodes 8", {}),
    "async_two_train": ("async", "--num-nodes 4 --train-num-nodes 2", {}),
    "async_p2p": ("async", "--pause-generation-mode retract --update-weight-transfer-mode p2p", {}),
    "async_fp8": ("async", "--rollout-fp8 --num-nodes 2", {}),
    "async_on_gpu_fp32": (
        "async",
        "--no-optimizer-cpu-offload --no-use-precision-aware-optimizer --accumulate-allreduce-grads-in-fp32",
        {},
    ),
    "async_resume_wandb": (
        "async",
        "--resume --save-dir TMP/saved --wandb-project p --wandb-team t --wandb-run-name r",
        {},
    ),
    "async_bounded": ("async", "--max-weight-staleness 2 --use-tis --tis-clip 5 --tis-clip-low 0.5", {}),
    "async_rollout_only": ("async", "--mode debug_rollout_only --save-traces-dir disabled", {}),
    "async_external_host": (
        "async",
        "--session-server-external-host 203.0.113.9 --global-batch-size 128 --session-server-port 40000",
        {"WANDB_MODE": "offline"},
    ),
    "async_tiny_two_gpus": (
        "async",
        f"--num-nodes 2 --num-gpus-per-node 1 --miles-path TMP/august --model-shape {GPU}/model_shape.json "
        f"--argument-changes {GPU}/no_transformer_engine.json --no-optimizer-cpu-offload "
        "--no-use-precision-aware-optimizer --skip-prepare --rollout-batch-size 4 --n-samples-per-prompt 8",
        {},
    ),
    "lora_documented": ("lora", "--num-nodes 4", {}),
    "lora_two_nodes": ("lora", "--num-nodes 2", {}),
    "lora_sixteen_nodes": ("lora", "--num-nodes 16", {"MASTER_ADDR": "10.0.0.1"}),
    "lora_dense_attention": ("lora", "--dsa-attention-backend megatron --max-seq-len 4096 "
                             "--rollout-max-response-len 1024", {}),
    "lora_resume": ("lora", "--load-dir TMP/adapters --save-dir TMP/new --num-nodes 1", {}),
    "lora_wandb": ("lora", "--wandb-project p", {"WANDB_API_KEY": "canary-key"}),
    "lora_off_policy": (
        "lora", "--no-lora-base-cpu-backup --no-use-r3 --experts-shared-outer-loras --lora-rank 32 "
        "--target-modules o_proj kv_b_proj", {},
    ),
    "lora_long_trials": (
        "lora", "--extra-env-vars DAYTONA_API_KEY_FILE=/keys/daytona --ray-address http://10.0.0.1:8265",
        {"AGENT_TRIAL_TIMEOUT": "3601"},
    ),
    "lora_rollout_only": ("lora", "--mode debug_rollout_only --save-traces-dir disabled", {}),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A stopped run that was saved after rollout 39 and dumped to 42, adapters after 9 and 19, and two older Miles."""
    saved = tmp_path / "saved"
    dumps = saved / "traces" / "rollout_data"
    dumps.mkdir(parents=True)
    (saved / "latest_checkpointed_iteration.txt").write_text("39")
    for number in (39, 40, 41, 42):
        (dumps / f"{number}.pt").write_bytes(b"")
    for number, ranks in ((9, 8), (19, 8), (29, 7)):
        adapter = tmp_path / "adapters" / f"iter_{number:07d}" / "adapter"
        adapter.mkdir(parents=True)
        for rank in range(ranks):
            (adapter / f"adapter_megatron_rank{rank}.pt").write_bytes(b"x")
            (adapter / f"training_state_rank{rank}.pt").write_bytes(b"x")
    (tmp_path / "adapters" / "iter_0000029" / "adapter" / "training_state_rank6.pt").unlink()
    sources.august(tmp_path / "august")
    sources.may(tmp_path / "may")
    sources.may_package(tmp_path / "may_package")
    return tmp_path


@pytest.fixture
def planned(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, Any]]:
    monkeypatch.setattr("launcher.miles.launch.has_nvlink", lambda: True)

    def plan(case: str) -> dict[str, Any]:
        name, flags, environment = CASES[case]
        script = launcher(name)
        argv = flags.replace("TMP", str(folder)).split()
        resolved = script.resolved(argv, environment)
        plan, _ = plan_run(script.program, resolved, script.recipe, script.find_start, environment)
        text = plan.as_json().replace(str(folder), "TMP").replace(str(ROOT), "REPOSITORY").replace(plan.run_id, "RUN")
        return json.loads(text)

    return plan


@pytest.mark.parametrize("case", CASES)
def test_the_plan_is_the_one_that_was_read(case: str, planned: Callable[[str], dict[str, Any]]) -> None:
    plan = planned(case)
    path = GOLDEN / f"{case}.json"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(json.dumps(plan, indent=1) + "\n")
    assert plan == json.loads(path.read_text())


@pytest.mark.parametrize("case", CASES)
def test_the_placement_of_a_plan_is_that_of_its_arguments(case: str, planned: Callable[[str], dict[str, Any]]) -> None:
    plan = planned(case)
    assert as_changed(plan["placement"], plan["arguments"]) == plan["placement"]


def test_every_golden_file_has_its_case_and_every_launcher_seven() -> None:
    assert {path.stem for path in GOLDEN.glob("*.json")} == set(CASES)
    for name in SCRIPTS:
        assert sum(1 for launcher_name, _, _ in CASES.values() if launcher_name == name) >= 7


@pytest.mark.parametrize("case", CASES)
def test_every_flag_of_a_plan_exists_in_miles_megatron_or_sglang(
    case: str, planned: Callable[[str], dict[str, Any]]
) -> None:
    parts = ("miles", "miles_newer", "miles_older", "megatron", "sglang")
    known = {flag for part in parts for flag in sources.NAMES[part]}
    known |= {flag.replace("--", "--no-", 1) for flag in known}
    flags = [flag for flag, _ in grouped(planned(case)["arguments"])]
    assert set(flags) <= known
    assert len(flags) == len(set(flags)), "a flag given twice"

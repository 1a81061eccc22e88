"""Cluster plans and the LoRA launcher rehearsed with a tiny model: real agent server, tasks, sandbox and addresses."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from launcher.miles.adapter_start import newest_adapter
from local_engine.config import LocalRunConfig
from tests.end_to_end.run_parts import ROOT, command
from tests.harbor_service.harbor_server_process import AgentServerProcess

SESSION_PORTS = 3


@contextmanager
def free_ports(count: int) -> Iterator[int]:
    """First of `count` ports in a row that nobody has, below those that the system gives away itself."""
    for first in range(21000, 30000, count):
        try:
            for port in range(first, first + count):
                socket.create_server(("0.0.0.0", port)).close()
        except OSError:
            continue
        yield first
        return
    raise AssertionError("no free ports")


def run(*argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *argv],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=180,
    )


@pytest.fixture
def plan(shared_server: LocalRunConfig, tmp_path: Path) -> Iterator[Path]:
    """What run.py would start on a cluster whose head is this machine."""
    with free_ports(SESSION_PORTS) as first:
        planned = run(
            *("run.py", "--dry-run", "--format", "json", "--agent-server-url", str(shared_server.agent_server_url)),
            *("--prompt-data", str(shared_server.prompt_data), "--harbor-tasks-dir", "/tasks/of/the/agents/machine"),
            *("--rollout-batch-size", "2", "--n-samples-per-prompt", "2", "--global-batch-size", "4"),
            *("--session-server-port", str(first), "--session-server-workers", str(SESSION_PORTS)),
            *("--session-server-external-host", socket.gethostname(), "--miles-host-ip", "0.0.0.0"),
            AGENT_TRIAL_TIMEOUT="9000",
        )
        assert planned.returncode == 0, planned.stderr
        path = tmp_path / "plan.json"
        path.write_text(planned.stdout)
        yield path


def test_a_cluster_plan_runs_with_its_data_agents_and_addresses(
    plan: Path, shared_server: LocalRunConfig, tmp_path: Path
) -> None:
    model = ("--hf-checkpoint", str(shared_server.hf_checkpoint), "--save-dir", str(tmp_path / "run"))
    small = ("--device", "cpu", "--dtype", "float32", "--threads", "1")
    rehearsed = run("run.py", "--engine", "local", "--from-plan", str(plan), *model, *small)
    said = " ".join((rehearsed.stdout + rehearsed.stderr).split())
    assert rehearsed.returncode == 0, said
    assert "--max-seq-len is 2048 instead of 65536" in said
    metrics = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["discarded"] for row in metrics] == [0]
    kept: dict[str, Any] = json.loads((tmp_path / "run" / "traces" / "launch.json").read_text())
    assert kept["ports"]["session_server"] == json.loads(plan.read_text())["ports"]["session_server"]
    assert kept["environment"]["AGENT_TRIAL_TIMEOUT"] == "9000"


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        ("the head is elsewhere", "way back"),
        ("a session port is taken", "ports"),
        ("trials outlast the run's patience", "time limits"),
        ("the prompts are elsewhere", "prompt data"),
        ("a key file is missing", "AGENT_SERVER_TOKEN_FILE"),
    ],
)
def test_what_would_break_on_the_cluster_is_found_before(
    fault: str, found: str, plan: Path, shared_server: LocalRunConfig, tmp_path: Path
) -> None:
    content = json.loads(plan.read_text())
    first = content["ports"]["session_server"]
    flags: list[str] = []
    taken = None
    match fault:
        case "the head is elsewhere":
            flags = ["--session-server-external-host", "192.0.2.1"]
        case "a session port is taken":
            taken = socket.create_server(("0.0.0.0", first + SESSION_PORTS - 1))
        case "trials outlast the run's patience":
            content["environment"]["AGENT_TRIAL_TIMEOUT"] = "60"
        case "the prompts are elsewhere":
            flags = ["--prompt-data", str(tmp_path / "nowhere.jsonl")]
        case _:
            content["environment"]["AGENT_SERVER_TOKEN_FILE"] = str(tmp_path / "none")
    plan.write_text(json.dumps(content))
    flags += ["--hf-checkpoint", str(shared_server.hf_checkpoint), "--save-dir", str(tmp_path / "run")]
    checked = run("run.py", "--engine", "local", "--from-plan", str(plan), "--preflight-only", *flags)
    if taken is not None:
        taken.close()
    assert checked.returncode == 3, checked.stderr
    assert any("failure" in line and found in line for line in checked.stderr.splitlines()), checked.stderr
    assert not (tmp_path / "run" / "traces").exists()


@pytest.mark.long
def test_the_lora_launcher_trains_its_adapter_here_and_saves_it_where_a_cluster_looks(
    own_server: LocalRunConfig, server: AgentServerProcess
) -> None:
    argv = command(own_server, "--lora-alpha", "6", "--skip-preflight", script="run_glm52_lora_tb2_daytona.py")
    done = run(*argv[1:])
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 0, said
    assert "Daytona's sandboxes are replaced by those of this machine" in said
    assert "on q_proj, k_proj, v_proj, o_proj (it has no q_a_proj, kv_a_proj_with_mqa, q_b_proj, kv_b_proj)" in said
    adapter = newest_adapter(own_server.save_dir)
    assert (adapter.rollout, adapter.shards) == (0, 0)
    settings = json.loads((adapter.folder / "adapter_config.json").read_text())
    assert (settings["r"], settings["lora_alpha"]) == (4, 6)
    weights = load_file(adapter.folder / "adapter_model.safetensors")
    adapted = {name.split(".lora_")[0].rpartition(".")[2] for name in weights}
    assert adapted == {"q_proj", "k_proj", "v_proj", "o_proj"}


@pytest.mark.long
def test_an_adapter_of_modules_that_the_model_lacks_is_refused_with_those_it_has(
    shared_server: LocalRunConfig, tmp_path: Path
) -> None:
    argv = command(shared_server, "--target-modules", "q_a_proj", "kv_b_proj", script="run_glm52_lora_tb2_daytona.py")
    refused = run(*argv[1:], "--save-dir", str(tmp_path / "run"), "--skip-preflight")
    assert refused.returncode == 2
    said = " ".join(refused.stderr.split())
    assert "q_a_proj,kv_b_proj" in said and "it has q_proj, k_proj" in said


def test_the_lora_rehearsal_says_what_of_daytona_was_checked(own_server: LocalRunConfig) -> None:
    argv = command(own_server, "--preflight-only", script="run_glm52_lora_tb2_daytona.py")
    checked = run(*argv[1:], DAYTONA_API_KEY="")
    assert checked.returncode == 0, checked.stderr
    assert "DAYTONA_API_KEY is not set here, so Daytona was not asked" in checked.stderr
    short = command(
        own_server, "--preflight-only", "--extra-env-vars", "SANDBOX_AUTO_STOP_MINUTES=30",
        script="run_glm52_lora_tb2_daytona.py",
    )  # fmt: skip
    failed = run(*short[1:], DAYTONA_API_KEY="")
    assert failed.returncode == 3
    assert "stop after 30 idle minutes, a trial may take 120" in failed.stderr

"""Launchers end to end on a real Ray; what stands in for Miles and for nvidia-smi says so under tests/stubs."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from launcher.ray_jobs.client import connect
from launcher.ray_jobs.cluster import Cluster
from launcher.scripts import ROOT
from tests.end_to_end.launcher_run import Ground, make_ground, write_reference
from tests.harbor_service.harbor_server_process import AgentServerProcess, write_task
from tests.launcher.ray_jobs.ray_cluster import NUM_GPUS, eventually, folder_of, ray_cluster

__all__ = ["ray_cluster"]

TASKS = ("a", "b")
CANARIES = {
    "WANDB_API_KEY": "canary-wandb-7f3a",
    "DAYTONA_API_KEY": "canary-daytona-7f3a",
    "HARBOR_ADMIN_SECRET": "canary-admin-7f3a",
    "HF_TOKEN": "canary-hub-7f3a",
}


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentServerProcess]:
    folder = tmp_path_factory.mktemp("agents")
    for name in TASKS:
        write_task(folder / "tasks", name)
    process = AgentServerProcess(folder, folder / "tasks", "--max-concurrent", "12", "--agent-timeout", "60")
    yield process
    process.close()


@pytest.fixture
def ground(tmp_path: Path, agents: AgentServerProcess) -> Ground:
    return make_ground(tmp_path, agents.url, NUM_GPUS, TASKS)


def test_checks_conversion_and_job_run_on_a_head_of_its_own(tmp_path: Path, agents: AgentServerProcess) -> None:
    ground = make_ground(tmp_path, agents.url, 4, TASKS)
    flags = ("--mode", "debug_rollout_only", "--save-traces-dir", str(tmp_path / "traces"))
    ended = ground.run("sync", *flags, *ground.job_variables(STAND_IN_WORKER="1", STAND_IN_LINES="2"))
    assert ended.code == 0, ended.err
    assert "line 0\nline 1\n" in ended.out
    assert "converting, rank 3 of 4" in ended.out
    marker = json.loads((tmp_path / "reference" / "converted_from.json").read_text())
    assert marker["hf_checkpoint"] == str(tmp_path / "model")

    plan, record = ground.launch_file(), ground.recorded()
    assert plan == json.loads((tmp_path / "traces" / "launch.json").read_text())
    assert record["argv"] == plan["arguments"]
    assert record["file"] == plan["entrypoint"][-1]
    for seen in (record["environment"], record["worker"]["environment"]):
        assert {name: seen[name] for name in plan["environment"]} == plan["environment"]
    sources = plan["environment"]["PYTHONPATH"].split(":")
    assert str(ROOT) in sources
    assert list(dict.fromkeys(path for path in record["worker"]["path"] if path in sources)) == sources


def test_secrets_are_in_no_argument_no_job_description_no_plan_and_no_log(
    tmp_path: Path, agents: AgentServerProcess
) -> None:
    ground = make_ground(tmp_path, agents.url, 4, TASKS)
    write_reference(tmp_path / "reference")
    home = tmp_path / "home"
    home.mkdir()
    (home / ".netrc").write_text("machine api.wandb.ai login user password canary-netrc-7f3a\n")
    (home / ".netrc").chmod(0o600)
    (tmp_path / "admin").write_text("canary-file-7f3a")
    (tmp_path / "admin").chmod(0o600)
    variables = {**CANARIES, "HOME": str(home), "HARBOR_ADMIN_SECRET_FILE": str(tmp_path / "admin")}
    flags = ("--wandb-project", "p", "--save-interval", "1000", "--skip-preflight")
    dry = ground.run("sync", "--dry-run", "--format", "json", "--wandb-project", "p", variables=variables)
    checked = ground.run("sync", "--preflight-only", "--wandb-project", "p", variables=variables)
    assert " ok  W&B" in checked.err
    running = subprocess.Popen(
        ground.argv("sync", *flags, *ground.job_variables(STAND_IN_WORKER="1", STAND_IN_SLEEP="600")),
        env=ground.environment(variables),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    eventually(ground.record.exists, "the job's record")
    (head,) = (pid for pid in _children(running.pid) if "head_process.py" in _command(pid))
    logs = [path for path in folder_of(head).rglob("*") if path.is_file()]
    seen = {str(path): path.read_text(errors="replace") for path in logs}
    processes = {pid: _command(pid) for pid in _all_processes()}
    port = re.search(r"--dashboard-port=(\d+)", processes[head])
    assert port is not None
    description = httpx.get(f"http://127.0.0.1:{port[1]}/api/jobs/", trust_env=False).text
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=120)
    assert running.returncode == 130

    record = ground.recorded()
    assert record["worker"]["environment"]["WANDB_API_KEY"] == CANARIES["WANDB_API_KEY"], "workers need it"
    saved = "".join(path.read_text() for path in ground.save_dir.rglob("*") if path.is_file())
    places = {
        "argument list": json.dumps(record["argv"]),
        "command lines": "\n".join(processes.values()),
        "job description": description,
        "output": out + err + dry.out + dry.err + checked.out + checked.err,
        "files of the run": saved,
        **seen,
    }
    assert "STAND_IN_RECORD" in description, "the description is the one of this job"
    for secret in (*CANARIES.values(), "canary-netrc-7f3a", "canary-file-7f3a"):
        assert [place for place, text in places.items() if secret in text] == []


def test_the_jobs_failure_is_the_launchers(ground: Ground, ray_cluster: Cluster) -> None:
    write_reference(ground.folder / "reference")
    flags = ("--ray-address", ray_cluster.address, "--skip-preflight")
    ended = ground.run("sync", *flags, *ground.job_variables(STAND_IN_EXIT="3"))
    assert ended.code == 1
    assert "failed" in ended.err


@pytest.mark.long
def test_a_conversion_that_fails_ends_the_launch_before_the_job(ground: Ground, ray_cluster: Cluster) -> None:
    flags = ("--ray-address", ray_cluster.address, "--skip-preflight")
    ended = ground.run("sync", *flags, *ground.job_variables(STAND_IN_CONVERT_EXIT="5"))
    assert ended.code == 1
    assert not ground.record.exists()
    assert not (ground.folder / "reference" / "converted_from.json").exists()


def test_ctrl_c_stops_the_job_and_says_so(ground: Ground, ray_cluster: Cluster) -> None:
    write_reference(ground.folder / "reference")
    running = subprocess.Popen(
        ground.argv("sync", "--ray-address", ray_cluster.address, "--skip-preflight",
                    *ground.job_variables(STAND_IN_SLEEP="600")),
        env=ground.environment({}), cwd=ground.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    eventually(ground.record.exists, "the job's record")
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=120)
    assert running.returncode == 130
    assert "STOPPED" in err
    job = connect(ray_cluster.address).state(ground.launch_file()["run_id"])
    assert job.status == "STOPPED"


def test_a_detached_run_says_how_to_follow_and_stop_it(ground: Ground, ray_cluster: Cluster) -> None:
    write_reference(ground.folder / "reference")
    flags = ("--ray-address", ray_cluster.address, "--skip-preflight", "--no-wait")
    ended = ground.run("sync", *flags, *ground.job_variables())
    run_id = ground.launch_file()["run_id"]
    assert ended.code == 0
    assert f"ray job stop {run_id}" in ended.out and f"ray job logs --follow {run_id}" in ended.out
    eventually(lambda: connect(ray_cluster.address).state(run_id).status == "SUCCEEDED", "the end of the job")


@pytest.mark.long
def test_the_checks_run_on_the_nodes_and_say_what_the_cluster_lacks(ground: Ground, ray_cluster: Cluster) -> None:
    write_reference(ground.folder / "reference")
    flags = ("--ray-address", ray_cluster.address, "--preflight-only", "--mode", "debug_rollout_only")
    ended = ground.run("async", "--num-nodes", "2", *flags, *ground.job_variables())
    assert ended.code == 3
    assert f"1 nodes have {NUM_GPUS} GPUs, 2 are wanted" in ended.err
    assert "ok  way back" in ended.err
    assert not ground.record.exists() and not ground.save_dir.exists()


@pytest.mark.long
def test_two_launchers_share_a_cluster_and_not_a_save_folder(ground: Ground, ray_cluster: Cluster) -> None:
    write_reference(ground.folder / "reference")
    flags = ("--ray-address", ray_cluster.address, "--skip-preflight")
    first = subprocess.Popen(
        ground.argv("sync", *flags, *ground.job_variables(STAND_IN_SLEEP="600")),
        env=ground.environment({}), cwd=ground.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    eventually(ground.record.exists, "the first job's record")
    same = ground.run("sync", *flags, *ground.job_variables())
    assert same.code == 2 and "in use by another run" in same.err
    other = ground.run("sync", *flags, "--save-dir", str(ground.folder / "other"), *ground.job_variables())
    assert other.code == 0
    first.send_signal(signal.SIGINT)
    assert first.wait(timeout=120) == 130


def test_the_fp8_configuration_is_there_before_the_job_is(ground: Ground, ray_cluster: Cluster) -> None:
    flags = ("--ray-address", ray_cluster.address, "--skip-preflight", "--num-nodes", "1")
    fp8 = ("--fp8-rollout-checkpoint", str(ground.folder / "a: #b"), "--fp8-rollout-gpus-per-engine", "2")
    ended = ground.run("lora", *flags, *fp8, *ground.job_variables())
    assert ended.code == 0, ended.err
    argv = ground.recorded()["argv"]
    config = Path(argv[argv.index("--sglang-config") + 1])
    assert config == ground.save_dir / "sglang_fp8_rollout.yaml"
    (group,) = yaml.safe_load(config.read_text())["sglang"]
    assert group["model_path"] == str(ground.folder / "a: #b")
    assert group["update_weights"] is True and group["name"] == "default"
    assert group["server_groups"] == [{"worker_type": "regular", "num_gpus": 2}]


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _all_processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
    except OSError:
        return ""

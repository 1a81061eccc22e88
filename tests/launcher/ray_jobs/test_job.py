import io
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from launcher.errors import ExitCode, PreflightError
from launcher.ray_jobs.client import connect
from launcher.ray_jobs.cluster import Cluster
from launcher.ray_jobs.job import JobSpec, follow, job_output, run_job, stop, submit
from tests.launcher.ray_jobs.ray_cluster import REPOSITORY, eventually, job, recorded

AWKWARD = (
    "two words",
    'it\'s "quoted"',
    "$HOME `id` $(id)",
    "a;b&&c|d>e",
    "first\nsecond\n",
    "[0]*1+[1]*46",
    "größe 模型 \U0001f389",
    "",
    "back\\slash\ttab",
    "--flag=*",
    "~",
    "!!",
)


@pytest.fixture(scope="module")
def record(ray_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the driver and a worker of one successful job saw."""
    folder = tmp_path_factory.mktemp("record")
    (folder / "module_of_the_job.py").touch()
    environment = {
        "STAND_IN_RECORD": str(folder / "record.json"),
        "STAND_IN_WORKER": "1",
        "PYTHONPATH": str(folder),
        "AGENT_MODEL_NAME": "a model; [0]*1 'größe'",
    }
    succeeded, log = job_output(ray_cluster, job(environment, *AWKWARD), timeout=120)
    assert succeeded, log
    return {**recorded(folder / "record.json"), "folder": str(folder)}


def test_awkward_arguments_arrive_byte_for_byte(record: dict[str, Any]) -> None:
    assert record["argv"] == list(AWKWARD)


def test_driver_and_worker_see_the_jobs_environment_and_python_path(record: dict[str, Any]) -> None:
    assert record["worker"]["pid"] != record["pid"]
    for process in (record, record["worker"]):
        assert process["environment"]["AGENT_MODEL_NAME"] == "a model; [0]*1 'größe'"
        assert record["folder"] in process["path"]


def test_a_job_that_succeeds_gives_its_whole_log_and_code_0(
    ray_cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    out = io.StringIO()
    spec = job({"STAND_IN_LINES": "30"})
    assert run_job(ray_cluster, spec, wait=True, out=out) == ExitCode.SUCCEEDED
    assert [line for line in out.getvalue().splitlines() if line.startswith("line")] == [f"line {n}" for n in range(30)]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("told", "said"), [("7", "exit code 7"), ("crash", "exit code 1")])
def test_a_job_that_fails_is_a_failure_with_its_code_named(
    ray_cluster: Cluster, capsys: pytest.CaptureFixture[str], told: str, said: str
) -> None:
    spec = job({"STAND_IN_EXIT": told, "STAND_IN_LINES": "1"})
    assert run_job(ray_cluster, spec, wait=True, out=io.StringIO()) == ExitCode.FAILED
    sentence = capsys.readouterr().err
    assert said in sentence
    assert sentence.count("\n") == 1


def test_two_jobs_at_once_keep_their_logs_and_verdicts_apart(ray_cluster: Cluster) -> None:
    specs = [job({"STAND_IN_LINES": "3", "STAND_IN_EXIT": code}, f"job {code}") for code in ("0", "5")]
    outs = [io.StringIO(), io.StringIO()]
    with ThreadPoolExecutor() as pool:
        codes = list(pool.map(lambda spec, out: run_job(ray_cluster, spec, wait=True, out=out), specs, outs))
    assert codes == [ExitCode.SUCCEEDED, ExitCode.FAILED]
    for code, out in zip(("0", "5"), outs, strict=True):
        assert f"job {code}" in out.getvalue()
        assert out.getvalue().count("line 2") == 1


def test_a_detached_job_runs_on_and_its_handles_are_printed(ray_cluster: Cluster, tmp_path: Path) -> None:
    out = io.StringIO()
    spec = job({"STAND_IN_SLEEP": "600", "STAND_IN_RECORD": str(tmp_path / "record")})
    assert run_job(ray_cluster, spec, wait=False, out=out) == ExitCode.SUCCEEDED
    recorded(tmp_path / "record")
    assert f"ray job logs --follow {spec.submission_id} --address {ray_cluster.address}" in out.getvalue()
    assert f"ray job stop {spec.submission_id} --address {ray_cluster.address}" in out.getvalue()
    stop(ray_cluster, spec.submission_id)
    assert connect(ray_cluster.address).state(spec.submission_id).status == "STOPPED"


def test_a_job_stopped_by_somebody_else_is_a_failure_that_says_so(
    ray_cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = job({"STAND_IN_SLEEP": "600", "STAND_IN_RECORD": str(tmp_path / "record")})
    submit(ray_cluster, spec)
    with ThreadPoolExecutor() as pool:
        following = pool.submit(follow, ray_cluster, spec.submission_id, io.StringIO())
        recorded(tmp_path / "record")
        stop(ray_cluster, spec.submission_id)
        assert following.result() == ExitCode.FAILED
    assert "stopped by somebody else" in capsys.readouterr().err


def test_the_output_of_a_job_that_does_not_end_says_so_and_the_job_is_stopped(ray_cluster: Cluster) -> None:
    spec = job({"STAND_IN_SLEEP": "600"})
    succeeded, log = job_output(ray_cluster, spec, timeout=0.5)
    assert not succeeded
    assert "no end after 0.5 s" in log
    assert connect(ray_cluster.address).state(spec.submission_id).status == "STOPPED"


def test_the_wait_for_an_output_can_be_interrupted_from_another_thread(ray_cluster: Cluster, tmp_path: Path) -> None:
    spec = job({"STAND_IN_SLEEP": "600", "STAND_IN_RECORD": str(tmp_path / "record")})
    interrupted = threading.Event()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(job_output, ray_cluster, spec, timeout=600, interrupted=interrupted)
        recorded(tmp_path / "record")
        interrupted.set()
        assert waiting.result() == (False, "interrupted")
    connection = connect(ray_cluster.address)
    eventually(lambda: connection.state(spec.submission_id).status == "STOPPED", "the end of the job")


@pytest.mark.parametrize(("told", "expected"), [("0", ExitCode.SUCCEEDED), ("7", ExitCode.FAILED)])
@pytest.mark.parametrize("full", [True, False])
def test_an_output_that_takes_no_more_is_said_once_and_the_job_keeps_its_verdict(
    ray_cluster: Cluster, capsys: pytest.CaptureFixture[str], told: str, expected: ExitCode, full: bool
) -> None:
    spec = job({"STAND_IN_LINES": "30", "STAND_IN_LINE_SLEEP": "0.02", "STAND_IN_EXIT": told})
    if full:
        descriptor = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, descriptor = os.pipe()
        os.close(reader)
    with os.fdopen(descriptor, "w") as out:
        assert run_job(ray_cluster, spec, wait=True, out=out) == expected
    said = capsys.readouterr().err
    assert said.count("the output was closed") == 1
    assert f"ray job stop {spec.submission_id} --address {ray_cluster.address}" in said


def test_a_detached_job_whose_output_is_closed_says_its_handles_on_standard_error(
    ray_cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = job()
    with open("/dev/full", "w") as out:
        assert run_job(ray_cluster, spec, wait=False, out=out) == ExitCode.SUCCEEDED
    assert f"ray job logs --follow {spec.submission_id}" in capsys.readouterr().err


def test_sigterm_is_what_it_was_once_a_job_is_no_longer_followed(ray_cluster: Cluster) -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert run_job(ray_cluster, job(), wait=True, out=io.StringIO()) == ExitCode.SUCCEEDED
    assert signal.getsignal(signal.SIGTERM) == before


def test_an_id_that_was_used_is_refused(ray_cluster: Cluster) -> None:
    spec = job()
    submit(ray_cluster, spec)
    with pytest.raises(PreflightError, match=f"{spec.submission_id}.*already exists"):
        submit(ray_cluster, spec)


@pytest.mark.parametrize(
    ("name", "value"), [("WANDB_API_KEY", "canary"), ("hf_token", "canary"), ("PROXY", "http://u:canary@host")]
)
def test_a_secret_never_gets_into_the_description_of_a_job(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=name) as refused:
        JobSpec("id", (sys.executable,), {name: value}, {})
    assert "canary" not in str(refused.value)


def test_nothing_heavy_is_imported_before_a_job_is_wanted() -> None:
    code = (
        "import sys, launcher.ray_jobs.address, launcher.ray_jobs.cluster, launcher.ray_jobs.job\n"
        "print({'ray', 'aiohttp', 'requests', 'httpx', 'torch'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"

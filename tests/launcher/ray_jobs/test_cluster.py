"""A head of the launcher's own, beside the session's Ray, which stands for somebody else's."""

import io
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from launcher.errors import ExitCode, PreflightError
from launcher.ray_jobs.client import connect
from launcher.ray_jobs.cluster import Cluster, cluster
from launcher.ray_jobs.job import run_job, submit
from launcher.scripts import ROOT
from tests.launcher.ray_jobs.launcher_process import LauncherProcess
from tests.launcher.ray_jobs.ray_cluster import alive, eventually, folder_of, job, recorded, with_descendants


@pytest.mark.long
def test_an_own_head_killed_in_mid_run_fails_the_job_and_leaves_nothing_of_its_own_behind(
    ray_cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    others, away = tmp_path / "others", tmp_path / "away"
    submit(ray_cluster, job({"STAND_IN_SLEEP": "600", "STAND_IN_RECORD": str(others)}))
    monkeypatch.setenv("WANDB_API_KEY", "canary-of-the-test")
    monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:9")

    with cluster(None, num_gpus=0, node_ip="127.0.0.1") as own:
        assert own.pid is not None
        folder, processes = folder_of(own), with_descendants(own.pid)
        spec = job({"STAND_IN_SLEEP": "600", "STAND_IN_RECORD": str(away), "STAND_IN_CHILD": "1"})

        class KillsTheHead(io.StringIO):
            """As soon as the job is under way, from the thread that follows it."""

            def write(self, text: str, /) -> int:
                if "Running entrypoint" in text:
                    seen = recorded(away)
                    pids = (own.pid or 0, seen["pid"], seen["child"])
                    processes.extend(each for pid in pids for each in with_descendants(pid))
                    gcs = next(each for each in processes if each.name() == "gcs_server")
                    gcs.kill()
                return super().write(text)

        assert run_job(own, spec, wait=True, out=KillsTheHead()) == ExitCode.FAILED
        assert "head that this launcher had started has ended" in capsys.readouterr().err

    assert alive(processes) == []
    assert not folder.exists()
    assert recorded(away)["environment"]["WANDB_API_KEY"] == "canary-of-the-test"
    assert "canary-of-the-test" not in repr(spec)
    assert psutil.pid_exists(recorded(others)["pid"])
    assert connect(ray_cluster.address).address == ray_cluster.address


@pytest.mark.long
def test_a_launcher_that_is_killed_takes_its_head_along(tmp_path: Path) -> None:
    launcher = LauncherProcess("own", "wait", tmp_path / "record", "STAND_IN_SLEEP=600")
    processes = with_descendants(launcher.head_pid())
    processes += with_descendants(recorded(tmp_path / "record")["pid"])
    launcher.process.kill()
    launcher.process.wait()
    eventually(lambda: alive(processes) == [], "the end of the head")


@pytest.mark.long
def test_a_head_that_is_kept_outlives_its_launcher_and_ends_when_told(tmp_path: Path) -> None:
    launcher = LauncherProcess("own", "detach", tmp_path / "record", "STAND_IN_SLEEP=600")
    code, output, _ = launcher.end()
    head = launcher.head_pid()
    assert code == ExitCode.SUCCEEDED
    assert f"kill {head}" in output
    processes = [*with_descendants(head), *with_descendants(recorded(tmp_path / "record")["pid"])]
    folder = folder_of(head)
    assert len(alive(processes)) == len(processes)
    os.kill(head, signal.SIGTERM)
    eventually(lambda: alive(processes) == [], "the end of the head")
    assert not folder.exists()


@pytest.mark.long
def test_ctrl_c_in_the_terminal_lets_the_own_head_stop_the_job_first(tmp_path: Path) -> None:
    launcher = LauncherProcess("own", "wait", tmp_path / "record", "STAND_IN_SLEEP=600")
    head = launcher.head_pid()
    recorded(tmp_path / "record")
    processes = with_descendants(head)
    os.killpg(launcher.process.pid, signal.SIGINT)  # the terminal sends it to the whole group
    code, _, errors = launcher.end()
    assert code == ExitCode.STOPPED
    assert f"the job {launcher.submission_id} has ended: STOPPED" in errors
    assert alive(processes) == []


def test_a_head_that_does_not_start_shows_its_last_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/nowhere/token")
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setattr("tempfile.tempdir", folder)
        with (
            pytest.raises(PreflightError, match=r"(?s)did not start; its last lines:.*token"),
            cluster(None, num_gpus=0, node_ip="127.0.0.1"),
        ):
            pytest.fail("a head came up without its token")
        assert list(Path(folder).iterdir()) == []


@pytest.mark.long
def test_a_head_of_a_user_who_has_a_token_of_ray_is_reached_with_it_and_says_so_without(tmp_path: Path) -> None:
    """In a process of its own: Ray reads the mode once."""
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("0" * 64)
    code = (
        "import os, subprocess, sys\n"
        "from launcher.ray_jobs.cluster import cluster\n"
        "with cluster(None, num_gpus=0, node_ip='127.0.0.1') as own:\n"
        "    print(own.address, os.environ['RAY_AUTH_MODE'])\n"
        "    assert own.ray == 'RAY_AUTH_MODE=token ray', own.ray\n"
        "    without = {name: value for name, value in os.environ.items() if name != 'RAY_AUTH_MODE'}\n"
        "    code = f'from launcher.ray_jobs.client import connect; connect({own.address!r})'\n"
        "    asked = subprocess.run([sys.executable, '-c', code], env=without, stderr=subprocess.PIPE, text=True)\n"
        "    assert 'wants a token' in asked.stderr and 'RAY_AUTH_MODE=token' in asked.stderr, asked.stderr\n"
        "print('RAY_AUTH_MODE' in os.environ)"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH_")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    address, mode, left = done.stdout.split()
    assert address.startswith("http://127.0.0.1:") and (mode, left) == ("token", "False")


def test_a_home_that_cannot_be_looked_into_holds_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object) -> None:
        raise PreflightError(os.environ["RAY_AUTH_MODE"])

    monkeypatch.setattr("launcher.ray_jobs.cluster._start", start)
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/" + "x" * 5000)
    with pytest.raises(PreflightError, match=r"^disabled$"), cluster(None, num_gpus=0, node_ip="127.0.0.1"):
        pytest.fail("a head was started")
    assert "RAY_AUTH_MODE" not in os.environ


@pytest.mark.parametrize("node_ip", ["192.0.2.77", "no-such-host.invalid"])
def test_an_address_of_another_machine_is_refused_for_a_head_of_our_own(node_ip: str) -> None:
    with (
        pytest.raises(PreflightError, match=rf"{node_ip}.*MASTER_ADDR.*--ray-address"),
        cluster(None, num_gpus=0, node_ip=node_ip),
    ):
        pytest.fail("a head came up at an address of another machine")


@pytest.mark.long
def test_sigterm_stops_the_job_on_the_own_head_and_ends_it(tmp_path: Path) -> None:
    launcher = LauncherProcess("own", "wait", tmp_path / "record", "STAND_IN_SLEEP=600")
    head = launcher.head_pid()
    recorded(tmp_path / "record")
    processes = with_descendants(head)
    launcher.process.terminate()
    code, _, errors = launcher.end()
    assert code == ExitCode.STOPPED
    assert f"the job {launcher.submission_id} has ended: STOPPED" in errors
    assert alive(processes) == []


def test_sigterm_stops_the_job_as_ctrl_c_does(ray_cluster: Cluster, tmp_path: Path) -> None:
    launcher = LauncherProcess(ray_cluster.address, "wait", tmp_path / "record", "STAND_IN_SLEEP=600")
    driver = recorded(tmp_path / "record")["pid"]
    launcher.process.terminate()
    code, _, errors = launcher.end()
    assert code == ExitCode.STOPPED
    assert f"the job {launcher.submission_id} has ended: STOPPED" in errors
    assert connect(ray_cluster.address).state(launcher.submission_id).status == "STOPPED"
    assert not psutil.pid_exists(driver)


def test_the_first_ctrl_c_stops_the_job_and_waits_for_its_end(ray_cluster: Cluster, tmp_path: Path) -> None:
    launcher = LauncherProcess(ray_cluster.address, "wait", tmp_path / "record", "STAND_IN_SLEEP=600")
    driver = recorded(tmp_path / "record")["pid"]
    launcher.process.send_signal(signal.SIGINT)
    code, _, errors = launcher.end()
    assert code == ExitCode.STOPPED
    assert f"the job {launcher.submission_id} has ended: STOPPED" in errors
    assert connect(ray_cluster.address).state(launcher.submission_id).status == "STOPPED"
    assert not psutil.pid_exists(driver)


def test_a_second_ctrl_c_gives_up_waiting_and_says_how_to_stop(ray_cluster: Cluster, tmp_path: Path) -> None:
    launcher = LauncherProcess(
        ray_cluster.address, "wait", tmp_path / "record", "STAND_IN_SLEEP=600", "STAND_IN_IGNORE_SIGTERM=1"
    )
    recorded(tmp_path / "record")
    launcher.process.send_signal(signal.SIGINT)
    launcher.wait_for_error("a second Ctrl-C gives up")
    launcher.process.send_signal(signal.SIGINT)
    code, _, errors = launcher.end()
    assert code == ExitCode.STOPPED
    assert f"ray job stop {launcher.submission_id} --address {ray_cluster.address}" in errors

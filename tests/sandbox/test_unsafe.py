"""`--unsafe-no-sandbox`: no isolation, but trials that are graded, limited and ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from harbor_service.environments import BadEnvironment, environment_config
from sandbox.limits import Limits, SandboxLimitExceeded
from sandbox.unsafe import UnsafeSandbox, replace_folders
from tests.harbor_service.harbor_server_process import AgentServerProcess, write_task
from tests.sandbox.hostile_trial import HostileTask

ROOT = Path(__file__).resolve().parents[2]
ENV = {"PATH": "/usr/bin:/bin"}


@pytest.fixture
async def bare(base_dir: Path) -> AsyncIterator[UnsafeSandbox]:
    sandbox = UnsafeSandbox(Limits(flood_mb=4, output_kb=8, disk_mb=16, file_mb=64), base_dir)
    await sandbox.start()
    try:
        yield sandbox
    finally:
        await sandbox.close()


def processes(command: str) -> list[str]:
    texts: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            texts.append(path.read_bytes().replace(b"\0", b" ").decode().strip())
    return [text for text in texts if text == command]


def test_the_four_folders_are_replaced_where_a_path_begins() -> None:
    text = "cd /app; cat /logs/verifier/x '/tests' >/solution/a /application ./app a/app ~/app ${X}/app /app.py"
    moved = replace_folders(text, Path("/t"))
    assert (
        moved
        == "cd /t/app; cat /t/logs/verifier/x '/t/tests' >/t/solution/a /application ./app a/app ~/app ${X}/app /app.py"
    )


@pytest.mark.parametrize(("attack", "reward"), [("echo right > /app/answer", 1.0), ("true", 0.0)])
async def test_a_trial_is_graded(attack: str, reward: float, base_dir: Path, tmp_path: Path) -> None:
    task = HostileTask(tmp_path, base_dir)
    config = environment_config("local", [f"base_dir={base_dir}"], unsafe=True)
    task.runner = replace(task.runner, environment=config)
    outcome = await task.outcome(attack)
    assert (outcome.reward, outcome.exit_status) == (reward, "Submitted"), outcome


async def test_commands_have_a_clean_environment_and_limits(
    bare: UnsafeSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET_OF_OURS", "7d0f5a")
    ended = await bare.run("env; ulimit -c -f -n; pwd; id -u", "/app", ENV)
    assert ended.return_code == 0, ended
    assert "7d0f5a" not in ended.stdout
    assert "-f) 65536" in ended.stdout
    assert "/root/app\n" in ended.stdout
    if os.geteuid() == 0:
        assert not ended.stdout.endswith("\n0\n")


async def test_a_command_over_its_time_ends_with_its_group(bare: UnsafeSandbox) -> None:
    ended = await bare.run("echo before; sleep 61.25 & sleep 61.25", env=ENV, timeout=0.5)
    assert (ended.return_code, ended.stdout, ended.why) == (124, "before\n", "killed after 0.5 s")
    assert processes("sleep 61.25") == []


async def test_a_cancelled_command_ends_with_its_group(bare: UnsafeSandbox) -> None:
    running = asyncio.create_task(bare.run("sleep 62.25 & sleep 62.25", env=ENV))
    await asyncio.sleep(0.3)
    running.cancel()
    await asyncio.wait([running])
    await asyncio.sleep(0.1)
    assert processes("sleep 62.25") == []


async def test_endless_output_is_ended(bare: UnsafeSandbox) -> None:
    ended = await bare.run("yes", env=ENV, timeout=60)
    assert ended.return_code == 137
    assert "more than 4 MiB" in ended.why


async def test_background_processes_live_until_the_restart(bare: UnsafeSandbox) -> None:
    await bare.run("sleep 63.25 > /dev/null 2>&1 & echo 1 > /logs/verifier/reward.txt; echo x > /app/kept", env=ENV)
    assert (await bare.run("pgrep -c -f 'sleep 63[.]25'; cat /app/kept", env=ENV)).stdout == "1\nx\n"
    await bare.restart()
    assert (await bare.run("pgrep -c -f 'sleep 63[.]25'; cat /app/kept; ls /logs/verifier", env=ENV)).stdout == "0\nx\n"


async def test_a_planted_link_does_not_lead_the_restart_out(bare: UnsafeSandbox, tmp_path: Path) -> None:
    (tmp_path / "verifier").mkdir()
    (tmp_path / "verifier" / "ours").touch()
    tmp_path.chmod(0o777)
    await bare.run(f"rm -r /logs; ln -s {tmp_path} /logs; true", env=ENV)
    await bare.restart()
    assert (await bare.run("echo 1 > /logs/verifier/reward.txt", env=ENV)).return_code == 0
    assert os.listdir(tmp_path / "verifier") == ["ours"]
    assert (tmp_path / "verifier" / "ours").exists()


async def test_a_full_disk_ends_the_trial_by_name(bare: UnsafeSandbox) -> None:
    with pytest.raises(SandboxLimitExceeded, match="disk_mb is 16"):
        await bare.run("head -c 30000000 /dev/zero > /app/large; sleep 60", "/app", ENV, timeout=60)


def test_it_goes_with_the_local_environment_only() -> None:
    with pytest.raises(BadEnvironment, match="--unsafe-no-sandbox goes with --environment local"):
        environment_config("docker", unsafe=True)


def without_namespaces(*flags: str) -> list[str]:
    """A server where no user namespace can be made, as in an unprivileged container."""
    forbid = 'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"'
    argv = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", forbid, "sh"]
    return [*argv, sys.executable, str(ROOT / "agent_server.py"), "--environment", "local", "--port", "0", *flags]


def test_a_server_that_cannot_have_sandboxes_refuses_to_start(tmp_path: Path) -> None:
    write_task(tmp_path, "mkdir-1")
    argv = without_namespaces("--harbor-tasks-dir", str(tmp_path), "--trials-dir", str(tmp_path / "trials"))
    # Its base folder must be its own user's: in that namespace the caller is root, and nobody else exists.
    ended = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 3, ended.stderr
    assert "The sandbox needs user namespaces" in ended.stderr
    assert "--unsafe-no-sandbox" in ended.stderr


def test_the_server_says_loudly_that_it_has_no_sandbox(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks"
    write_task(tasks, "mkdir-1")
    server = AgentServerProcess(tmp_path, tasks, "--unsafe-no-sandbox")
    try:
        reply = server.run("mkdir-1", agent_name="oracle").json()
        assert (reply["reward"], reply["exit_status"]) == (1.0, "Submitted"), server.log
        assert "WARNING NO SANDBOX (--unsafe-no-sandbox)" in server.log
    finally:
        server.close()

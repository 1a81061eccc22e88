"""A trial ends when its caller hangs up, its session server is flushed or the server is told to stop."""

import json
import os
import socket
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harbor_service.harbor_model_stub import ModelStub, Reply, bash
from tests.harbor_service.harbor_server_process import AgentServerProcess, run_body


def sandboxed(marker: str) -> list[int]:
    """Processes whose command line holds `marker`, wherever they run."""
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (
                marker.encode() in (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                and int(folder.name) != os.getpid()
            ):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def wait_for(condition: Any, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return bool(condition())


def test_hang_up_ends_trial_and_sandbox(server: AgentServerProcess, model: ModelStub) -> None:
    model.answer = lambda body: bash("sleep 3141")
    url = httpx.URL(server.url)
    body = json.dumps(run_body("mkdir-1", model.base_url, agent_options={"command_timeout": 60})).encode()
    head = f"POST /run HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((url.host, url.port or 0)) as caller:
        caller.sendall(head.encode() + body)
        assert wait_for(lambda: sandboxed("sleep 3141"), 10)
    assert wait_for(lambda: not sandboxed("sleep 3141"), 1.5)
    assert wait_for(lambda: server.health()["running"] == 0, 1.5)


def test_hang_up_in_the_queue_never_starts_a_trial(server: AgentServerProcess, model: ModelStub) -> None:
    model.answer = lambda body: Reply("```bash\nmkdir target\n```", delay=2)
    with ThreadPoolExecutor(2) as pool:
        busy = [pool.submit(server.run, "mkdir-1", model.base_url) for _ in range(2)]
        assert wait_for(lambda: len(model.requests) == 2, 5)
        impatient = httpx.Client(base_url=server.url, timeout=httpx.Timeout(60, read=0.5))
        with impatient, pytest.raises(httpx.ReadTimeout):
            impatient.post("/run", json=run_body("mkdir-1", model.base_url))
        assert wait_for(lambda: server.health()["queued"] == 0, 1)
        assert [job.result().json()["reward"] for job in busy] == [1.0, 1.0]
    assert len(model.requests) == 2


def test_flush_ends_the_trials_of_one_instance_only(server: AgentServerProcess, model: ModelStub) -> None:
    model.answer = lambda body: Reply("```bash\nmkdir target\n```", delay=2)
    with ThreadPoolExecutor(3) as pool:
        jobs: list[Future[httpx.Response]] = []
        for owner in ("a", "b", "a"):
            jobs.append(pool.submit(server.run, "mkdir-1", model.base_url, session_server_instance_id=owner))
            time.sleep(0.05)
        assert wait_for(lambda: len(model.requests) == 2, 5)
        flushed = server.client.post("/flush", json={"session_server_instance_id": "a"})
        assert flushed.json() == {"cancelled": 2}
        ends = [(reply.json()["reward"], reply.json()["exit_status"]) for reply in (job.result() for job in jobs)]
    assert ends == [(None, "Aborted"), (1.0, "CommandSucceeded"), (None, "Aborted")]


def test_flush_of_an_instance_without_trials_answers_zero(server: AgentServerProcess) -> None:
    assert server.client.post("/flush", json={"session_server_instance_id": "nobody"}).json() == {"cancelled": 0}
    assert server.client.post("/flush", json={}).status_code == 422


def test_sigterm_ends_running_and_queued_trials(tmp_path: Path, tasks_dir: Path, model: ModelStub) -> None:
    model.answer = lambda body: bash("sleep 2718")
    server = AgentServerProcess(tmp_path, tasks_dir, "--max-concurrent", "4")
    with ThreadPoolExecutor(8) as pool:
        fields = {"agent_options": {"command_timeout": 100}}
        jobs = [pool.submit(server.run, "mkdir-1", model.base_url, **fields) for _ in range(8)]
        assert wait_for(lambda: len(sandboxed("sleep 2718")) >= 4 and server.health()["queued"] == 4, 15)
        assert server.terminate() == 0
        replies = [(job.result().status_code, job.result().json()) for job in jobs]
    assert sorted(status for status, _ in replies) == [200] * 4 + [503] * 4
    assert all(reply["exit_status"] == "Aborted" for status, reply in replies if status == 200)
    assert all(reply["started"] is False for status, reply in replies if status == 503)
    assert not sandboxed("sleep 2718")
    server.close()


def test_server_ends_with_its_parent(tmp_path: Path, tasks_dir: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    server = AgentServerProcess(tmp_path, tasks_dir, "--parent-pid", str(parent.pid))
    assert json.loads(server.ready_file.read_text())["pid"] == server.process.pid
    parent.communicate(b"\n")
    assert server.process.wait(10) == 0
    server.close()

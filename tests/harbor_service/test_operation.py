"""The server over days: a bounded queue, a drain, metrics, a kill and a restart."""

import asyncio
import os
import random
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

import swe_agent_function
from sandbox.leftovers import remove_leftovers
from tests.harbor_service.harbor_model_stub import ModelStub, Reply, bash
from tests.harbor_service.harbor_server_process import AgentServerProcess
from tests.harbor_service.test_trial_ends_from_outside import sandboxed, wait_for

LONG = {"agent_options": {"command_timeout": 600}}


@pytest.fixture
def base_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for sandboxes that no other server uses; other users must be able to pass through."""
    folder = Path(f"/tmp/agent-sandboxes-test-{os.getpid()}-{random.randrange(10**9)}")
    folder.mkdir(mode=0o711)
    yield folder
    left = sorted(path.name for path in folder.iterdir())
    folder.rmdir()
    assert not left


def sandbox_option(base_dir: Path) -> tuple[str, str]:
    return ("--environment-option", f"base_dir={base_dir}")


def mounts_below(folder: Path) -> list[str]:
    return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(folder) in line]


def metric(text: str, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    assert found, f"{name} is not in\n{text}"
    return float(found[1])


async def trial(server: AgentServerProcess, model: ModelStub, **metadata: object) -> dict[str, object]:
    os.environ["AGENT_SERVER_URL"] = server.url
    return await swe_agent_function.run(
        model.base_url, "", {}, {"instance_id": "mkdir-1", "agent_name": "shell", **metadata}
    )


async def test_a_full_queue_answers_429_and_the_client_comes_again(
    tmp_path: Path, tasks_dir: Path, model: ModelStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_SERVER_URL", "")
    monkeypatch.setattr(swe_agent_function, "LONGEST_RETRY", 0.5)
    model.answer = lambda body: Reply("```bash\nmkdir target\n```", delay=1)
    server = AgentServerProcess(tmp_path, tasks_dir, "--max-concurrent", "1", "--max-queued", "1")
    try:
        monkeypatch.setenv("AGENT_SERVER_WAIT", "120")
        answers = asyncio.gather(*(trial(server, model) for _ in range(4)))
        await asyncio.to_thread(wait_for, lambda: server.health()["queued"] == 1, 20)
        refused = await asyncio.to_thread(server.run, "mkdir-1", model.base_url)
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) > 0
        assert refused.json()["started"] is False and "--max-queued" in refused.json()["detail"]
        monkeypatch.setenv("AGENT_SERVER_WAIT", "0")
        given_up = await trial(server, model)
        assert (given_up["exit_status"], given_up["discard"]) == ("RequestRejected", True)
        assert [answer["reward"] for answer in await answers] == [1.0] * 4
        text = server.client.get("/metrics").text
        assert metric(text, 'agent_server_refused_total{reason="queue_full"}') >= 2
    finally:
        server.close()


def test_metrics_count_what_ended_and_how_long_it_took(tmp_path: Path, tasks_dir: Path, model: ModelStub) -> None:
    server = AgentServerProcess(tmp_path, tasks_dir)
    try:
        assert server.run("mkdir-1", model.base_url).json()["reward"] == 1.0
        assert server.run("broken-verifier", model.base_url).json()["reward"] == 0.0
        assert server.run("no-verifier", model.base_url).json()["reward"] is None
        reply = server.client.get("/metrics")
        assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
        text = reply.text
        for status, count in (("CommandSucceeded", 1), ("VerifierError", 1), ("TaskBroken", 1), ("InfraError", 0)):
            assert metric(text, f'agent_server_trials_total{{exit_status="{status}"}}') == count
        assert metric(text, "agent_server_reward_sum") == 1.0
        assert metric(text, "agent_server_reward_count") == 2
        for name, count in (("queue", 3), ("trial", 3), ("model", 2), ("environment", 2)):
            assert metric(text, f"agent_server_{name}_seconds_count") == count
            assert metric(text, f'agent_server_{name}_seconds_bucket{{le="+Inf"}}') == count
        assert (metric(text, "agent_server_running"), metric(text, "agent_server_queued")) == (0, 0)
        assert metric(text, "process_cpu_seconds_total") > 0
        assert metric(text, "process_resident_memory_bytes") > 1e6
    finally:
        server.close()


def test_an_ending_that_an_agent_made_up_is_counted_as_other() -> None:
    from harbor_service.trial_desk import Entry
    from harbor_service.trial_metrics import TrialMetrics
    from trajectory.outcome import Outcome

    metrics = TrialMetrics()
    entry = Entry(1, "t", "shell", None, 0.0, started_at=1.0, finished_at=3.0)
    for number in range(3):
        entry.outcome = Outcome(1.0, f"made up {number}")
        metrics.ended(entry)
    text = metrics.text().decode()
    assert metric(text, 'agent_server_trials_total{exit_status="other"}') == 3
    assert "made up" not in text


def test_sigterm_lets_running_trials_finish_and_refuses_new_ones(
    tmp_path: Path, tasks_dir: Path, model: ModelStub
) -> None:
    model.answer = lambda body: Reply("```bash\nmkdir target\n```", delay=2)
    server = AgentServerProcess(tmp_path, tasks_dir, "--max-concurrent", "1", "--drain-seconds", "60")
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(server.run, "mkdir-1", model.base_url)
        assert wait_for(lambda: len(model.requests) == 1, 20)
        queued = pool.submit(server.run, "mkdir-1", model.base_url)
        assert wait_for(lambda: server.health()["queued"] == 1, 20)
        server.process.send_signal(signal.SIGTERM)
        refused = queued.result()
        assert (refused.status_code, refused.json()["started"]) == (503, False)
        late = server.run("mkdir-1", model.base_url)
        assert (late.status_code, late.json()["started"]) == (503, False)
        assert int(late.headers["retry-after"]) > 0
        assert running.result().json()["reward"] == 1.0
    assert server.process.wait(20) == 0
    server.close()


@pytest.mark.parametrize(("drain", "signals"), [("1", 1), ("600", 2)])
def test_the_drain_ends_with_its_time_or_with_a_second_sigterm(
    tmp_path: Path, tasks_dir: Path, model: ModelStub, base_dir: Path, drain: str, signals: int
) -> None:
    model.answer = lambda body: bash("sleep 1618")
    server = AgentServerProcess(tmp_path, tasks_dir, "--drain-seconds", drain, *sandbox_option(base_dir))
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(server.run, "mkdir-1", model.base_url, **LONG) for _ in range(2)]
        assert wait_for(lambda: len(sandboxed("sleep 1618")) >= 2, 20)
        server.process.send_signal(signal.SIGTERM)
        assert wait_for(lambda: server.run("mkdir-1", model.base_url).status_code == 503, 5)
        for _ in range(signals - 1):
            server.process.send_signal(signal.SIGTERM)
        assert [job.result().json()["exit_status"] for job in jobs] == ["Aborted"] * 2
    assert server.process.wait(20) == 0
    assert not sandboxed("sleep 1618")
    server.close()


def test_a_clean_up_that_hangs_does_not_keep_the_server(
    tmp_path: Path, tasks_dir: Path, model: ModelStub, base_dir: Path
) -> None:
    model.answer = lambda body: bash("sleep 1123")
    environment = "tests.harbor_service.failures.hanging_environment:HangingEnvironment"
    flags = ("--environment", environment, "--shutdown-grace", "1", *sandbox_option(base_dir))
    server = AgentServerProcess(tmp_path, tasks_dir, *flags)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(server.run, "mkdir-1", model.base_url, **LONG)
        assert wait_for(lambda: sandboxed("sleep 1123"), 20)
        assert server.terminate() == 0
    assert "1 trials did not end in time" in server.log
    assert wait_for(lambda: not sandboxed("sleep 1123"), 10)
    assert remove_leftovers(base_dir)
    server.close()


def test_a_restart_finds_nothing_of_a_killed_server_or_removes_it(
    tmp_path: Path, tasks_dir: Path, model: ModelStub, base_dir: Path
) -> None:
    model.answer = lambda body: bash("sleep 1414 & sleep 1414")
    (tmp_path / "first").mkdir()
    server = AgentServerProcess(tmp_path / "first", tasks_dir, "--max-concurrent", "4", *sandbox_option(base_dir))
    with ThreadPoolExecutor(4) as pool:
        for _ in range(4):
            pool.submit(server.run, "mkdir-1", model.base_url, **LONG)
        assert wait_for(lambda: len(sandboxed("sleep 1414")) >= 8, 30)
        server.process.kill()
        server.process.wait()
    assert wait_for(lambda: not sandboxed("sleep 1414") and not sandboxed(str(base_dir)), 10)
    assert not mounts_below(base_dir)
    assert list(base_dir.iterdir())
    server.close()
    (tmp_path / "second").mkdir()
    model.answer = lambda body: bash("mkdir target")
    restarted = AgentServerProcess(tmp_path / "second", tasks_dir, *sandbox_option(base_dir))
    try:
        assert "removed what an earlier server left" in restarted.log
        assert not list(base_dir.iterdir())
        assert restarted.run("mkdir-1", model.base_url).json()["reward"] == 1.0
    finally:
        restarted.close()


@pytest.mark.parametrize("count", [24, pytest.param(200, marks=pytest.mark.long)])
async def test_random_cancellations_leave_nothing(
    tmp_path: Path, tasks_dir: Path, model: ModelStub, base_dir: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Callers hang up, or are flushed, at any moment: in the queue, at the start, in a command, in the verifier."""
    monkeypatch.setenv("AGENT_SERVER_WAIT", "60")
    monkeypatch.setenv("AGENT_SERVER_URL", "")
    model.answer = lambda body: bash("(sleep 1732 &) ; mkdir target; sleep 0.2")
    server = AgentServerProcess(tmp_path, tasks_dir, "--max-concurrent", "8", *sandbox_option(base_dir))
    chance = random.Random(7)
    children = {child.pid for child in psutil.Process(server.process.pid).children(recursive=True)}

    async def one(number: int) -> str:
        flushed = chance.random() < 0.3
        running = asyncio.create_task(trial(server, model, session_server_instance_id=str(number)))
        await asyncio.sleep(chance.uniform(0, 1.5))
        if flushed:
            await asyncio.to_thread(server.client.post, "/flush", json={"session_server_instance_id": str(number)})
            return str((await running)["exit_status"])
        running.cancel()
        await asyncio.wait({running})
        return "cancelled" if running.cancelled() else str((await running)["exit_status"])

    try:
        ends: list[str] = []
        for first in range(0, count, 12):
            ends += await asyncio.gather(*(one(number) for number in range(first, min(first + 12, count))))
        assert set(ends) <= {"cancelled", "Aborted", "CommandSucceeded"}
        assert ends.count("cancelled") + ends.count("Aborted") > count / 4
        # The last sandboxes are gone within seconds, however busy this machine is.
        assert wait_for(lambda: not sandboxed("sleep 1732") and not list(base_dir.iterdir()), 10)
        assert not mounts_below(base_dir)
        health = server.health()
        assert (health["running"], health["queued"]) == (0, 0)
        now = {child.pid for child in psutil.Process(server.process.pid).children(recursive=True)}
        assert now == children
        counted = sum(
            float(line.rpartition(" ")[2])
            for line in server.client.get("/metrics").text.splitlines()
            if line.startswith("agent_server_trials_total{")
        )
        assert counted <= count
    finally:
        server.close()


def test_a_disk_without_room_for_a_trial_is_a_named_discard(tmp_path: Path, tasks_dir: Path, model: ModelStub) -> None:
    server = AgentServerProcess(tmp_path, tasks_dir)
    try:
        server.trials_dir.rmdir()
        server.trials_dir.write_text("")
        reply = server.run("mkdir-1", model.base_url).json()
        assert (reply["reward"], reply["exit_status"]) == (None, "SandboxUnavailable")
    finally:
        server.close()

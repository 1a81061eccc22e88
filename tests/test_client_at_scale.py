"""The agent function with as many trajectories in one process as a large rollout has."""

import asyncio
import os
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import swe_agent_function
from tests.agent_server_stub import AgentServerStub, Answer, until
from tests.harbor_service.harbor_model_stub import Reply, SessionStub
from tests.harbor_service.harbor_server_process import ROOT, AgentServerProcess, write_task
from tests.harbor_service.scripted_agents import SCRIPTS
from tests.harbor_service.server_log import ended_trials

THOUSAND = 1000


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AGENT_SERVER_MAX_CONNECTIONS", "AGENT_SERVER_TOKEN_FILE", "AGENT_TRIAL_TIMEOUT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AGENT_SERVER_WAIT", "60")


async def run(metadata: dict[str, Any]) -> dict[str, Any]:
    return await swe_agent_function.run("http://10.0.0.1:30000/sessions/s1", "prompt", {}, metadata)


@pytest.mark.long
async def test_a_thousand_trials_are_admitted_at_once_and_every_one_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The stand-in answers none before it has all of them."""
    all_there = asyncio.Event()
    async with AgentServerStub(answer=lambda request: Answer(when=all_there)).serving() as server:
        monkeypatch.setenv("AGENT_SERVER_URL", server.url)
        calls = [asyncio.create_task(run({"instance_id": f"t-{number}"})) for number in range(THOUSAND)]
        await until(lambda: len(server.requests) == THOUSAND, 120)
        all_there.set()
        outcomes = await asyncio.gather(*calls)
        assert server.most_open == THOUSAND
    assert Counter(outcome["exit_status"] for outcome in outcomes) == {"Submitted": THOUSAND}
    assert len({request.body["instance_id"] for request in server.requests}) == THOUSAND, "each was asked once"


@pytest.mark.long
async def test_cancelling_a_thousand_trials_ends_every_one_and_leaves_the_client_working(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with AgentServerStub(answer=lambda request: Answer(when=asyncio.Event())).serving() as server:
        monkeypatch.setenv("AGENT_SERVER_URL", server.url)
        calls = [asyncio.create_task(run({"instance_id": f"t-{number}"})) for number in range(THOUSAND)]
        await until(lambda: len(server.requests) == THOUSAND, 120)
        for call in calls:
            call.cancel()
        ended = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ended)
        await until(lambda: server.hung_up == THOUSAND and server.open_now == 0, 60)
        server.answer = lambda request: Answer()
        assert (await run({"instance_id": "after"}))["exit_status"] == "Submitted"


def test_the_usual_limit_of_open_files_does_not_hold_trials_back() -> None:
    """In a process of its own, since a limit once raised stays."""
    script = (
        "import asyncio, resource, swe_agent_function\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))\n"
        "asyncio.run(swe_agent_function.run('http://h:1/v1', '', {}, {}))\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    environment = {**os.environ, "AGENT_SERVER_URL": "http://127.0.0.1:9", "AGENT_SERVER_WAIT": "0"}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60
    )
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert int(done.stdout) == (65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)), done.stderr
    assert "Connect call failed" in done.stderr, "the system's own reason"


CALLS = 48


@pytest.fixture(scope="module")
def many_tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("many")
    for number in range(CALLS):
        write_task(root, f"t-{number}")
    return root


@pytest.fixture
def server(tmp_path: Path, many_tasks: Path) -> Iterator[AgentServerProcess]:
    process = AgentServerProcess(tmp_path, many_tasks, "--max-concurrent", "4")
    yield process
    process.close()


async def test_the_real_server_takes_more_trials_than_it_runs_and_both_sides_count_the_same(
    server: AgentServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_SERVER_URL", server.url)
    agents = {f"t-{number}": "oracle" if number % 4 == 0 else "nop" for number in range(CALLS)}
    outcomes = dict(
        zip(
            agents,
            await asyncio.gather(*(run({"instance_id": name, "agent_name": agent}) for name, agent in agents.items())),
            strict=True,
        )
    )
    assert {name: outcome["reward"] for name, outcome in outcomes.items()} == {
        name: float(agent == "oracle") for name, agent in agents.items()
    }
    assert ended_trials(server.log) == {name: [outcome["exit_status"]] for name, outcome in outcomes.items()}
    assert max(outcome["agent_metrics"]["queue_seconds"] for outcome in outcomes.values()) > 0


@pytest.mark.long
async def test_both_sides_count_the_same_for_every_agent_with_a_model(
    server: AgentServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each agent one trial that ends by itself, one whose endpoint fails, one that is cut off."""
    monkeypatch.setenv("AGENT_SERVER_URL", server.url)
    sessions: list[SessionStub] = []
    expected: dict[str, str] = {}
    calls: dict[str, asyncio.Task[dict[str, Any]]] = {}
    for script in SCRIPTS.values():
        endings = {
            script.exit_status: [script.text("mkdir target"), *script.done],
            "ModelEndpointFailed": [script.text("ls"), Reply(status=500, body="boom")],
            "Aborted": [script.text("ls"), Reply(delay=600)],
        }
        for status, replies in endings.items():
            name = f"t-{len(calls)}"
            session = SessionStub(*replies)
            sessions.append(session)
            expected[name] = status
            record = {"instance_id": name, "agent_name": script.name, "agent_options": script.options}
            calls[name] = asyncio.create_task(swe_agent_function.run(session.base_url, "prompt", {}, record))

    async def ending(name: str, session: SessionStub) -> str:
        if expected[name] != "Aborted":
            return (await calls[name])["exit_status"]
        await until(lambda: session.turns == 1, 60)
        calls[name].cancel()
        await asyncio.wait({calls[name]})
        return "Aborted"

    try:
        got = await asyncio.gather(*(ending(name, session) for name, session in zip(calls, sessions, strict=True)))
        assert dict(zip(calls, got, strict=True)) == expected
        async with asyncio.timeout(60):
            while ended_trials(server.log) != {name: [status] for name, status in expected.items()}:
                await asyncio.sleep(0.1)
        assert (server.health()["running"], server.health()["queued"]) == (0, 0)
    finally:
        for session in sessions:
            session.close()

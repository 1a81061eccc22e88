"""The end of a rollout flushes the trials of every session server instance."""

import asyncio
import contextlib
import logging
from pathlib import Path
from types import SimpleNamespace

import pytest

import swe_agent_function
from tests.agent_server_stub import AgentServerStub, Answer, Request, until
from tests.free_port import free_port
from tests.swe_agent_function.calls import run

THREE = SimpleNamespace(
    session_server_instances=[SimpleNamespace(instance_id="a"), SimpleNamespace(instance_id="b")],
    session_server_instance_ids={30000: "b", 30001: "c"},
    session_server_instance_id="a",
)


def flushed(server: AgentServerStub) -> list[str]:
    return sorted(request.body["session_server_instance_id"] for request in server.requests)


async def test_one_failing_flush_does_not_stop_the_others(
    server: AgentServerStub, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(request: Request) -> Answer:
        failing = request.body["session_server_instance_id"] == "b"
        return Answer("no", 500) if failing else Answer('{"cancelled": 1}')

    server.answer = answer
    with caplog.at_level(logging.INFO, logger=swe_agent_function.__name__):
        await swe_agent_function.abort(THREE)
    assert flushed(server) == ["a", "b", "c"]
    assert {request.path for request in server.requests} == {"/flush"}
    warnings = [record.message for record in caplog.records if record.name == swe_agent_function.__name__]
    assert len(warnings) == 1
    assert "1 of 3" in warnings[0]
    assert "b: HTTP 500" in warnings[0]


async def test_flushes_run_side_by_side_and_are_bounded(
    server: AgentServerStub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(swe_agent_function, "FLUSH_TIMEOUT", 0.3)
    server.answer = lambda request: Answer(delay=30)
    async with asyncio.timeout(2):
        await swe_agent_function.abort(THREE)
    assert server.most_open == 3
    assert "3 of 3" in caplog.text


async def test_a_flush_gets_through_while_every_slot_is_taken(
    server: AgentServerStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_SERVER_MAX_CONNECTIONS", "1")
    server.answer = lambda request: Answer(delay=30 if request.path == "/run" else 0)
    trial = asyncio.create_task(run())
    await until(lambda: len(server.requests) == 1)
    await swe_agent_function.abort(SimpleNamespace(session_server_instance_id="a"))
    assert server.requests[1].path == "/flush"
    trial.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await trial


@pytest.mark.parametrize("args", [SimpleNamespace(), SimpleNamespace(session_server_instances=None)])
async def test_nothing_to_flush_is_silent(
    server: AgentServerStub, args: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    await swe_agent_function.abort(args)
    assert not server.requests
    assert not caplog.records


async def test_no_agent_server_set_is_silent(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    await swe_agent_function.abort(THREE)
    assert not caplog.records


async def test_a_dead_server_is_one_warning(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("AGENT_SERVER_URL", f"http://127.0.0.1:{free_port()}")
    await swe_agent_function.abort(THREE)
    assert len(caplog.records) == 1
    assert "3 of 3" in caplog.text


@pytest.mark.parametrize("as_file", [True, False])
async def test_the_admin_secret_keeps_working_for_flush(
    server: AgentServerStub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, as_file: bool
) -> None:
    if as_file:
        (tmp_path / "secret").write_text("adm1n\n")
        monkeypatch.setenv("HARBOR_ADMIN_SECRET_FILE", str(tmp_path / "secret"))
    else:
        monkeypatch.setenv("HARBOR_ADMIN_SECRET", "adm1n")
    await swe_agent_function.abort(SimpleNamespace(session_server_instance_id="a"))
    assert server.requests[0].headers["authorization"] == "Bearer adm1n"

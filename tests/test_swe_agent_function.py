"""The agent function against a server that misbehaves in every way the failure table names."""

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import AsyncGenerator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import swe_agent_function
from tests.agent_server_stub import AgentServerStub, Answer, Request, until
from trajectory.report import listening

SETTINGS = (
    "AGENT_SERVER_URL",
    "SWE_AGENT_URL",
    "AGENT_MODEL_NAME",
    "SWE_AGENT_MODEL_NAME",
    "AGENT_SERVER_TOKEN_FILE",
    "AGENT_SERVER_WAIT",
    "AGENT_TRIAL_TIMEOUT",
    "AGENT_SERVER_MAX_CONNECTIONS",
    "MILES_ROUTER_EXTERNAL_HOST",
    "SANDBOX_AUTO_STOP_MINUTES",
    "SANDBOX_AUTO_DELETE_MINUTES",
    "HARBOR_ADMIN_SECRET",
    "HARBOR_ADMIN_SECRET_FILE",
)
METADATA = {"instance_id": "mkdir-train-000017", "agent_name": "shell", "split": "train"}


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AGENT_SERVER_WAIT", "0")
    monkeypatch.setattr(swe_agent_function, "_warned", set[str]())
    monkeypatch.setattr(swe_agent_function, "_last_waiting_notice", float("-inf"))


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[AgentServerStub]:
    async with AgentServerStub().serving() as stub:
        monkeypatch.setenv("AGENT_SERVER_URL", stub.url + "/")
        yield stub


async def run(metadata: dict[str, Any] | None = None, base_url: str = "http://10.0.0.1:30000/sessions/s1") -> Any:
    return await swe_agent_function.run(
        base_url=base_url,
        prompt=[{"role": "user", "content": "x"}],
        request_kwargs={"temperature": 0.8, "max_tokens": 64},
        metadata=METADATA if metadata is None else metadata,
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# ---- what is asked ----


async def test_the_request_is_the_record_plus_the_session(
    server: AgentServerStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_MODEL_NAME", "glm-4.7-flash")
    from_miles = {"max_seq_len": "8192", "session_server_id": "node-a:30000", "session_server_instance_id": "i-1"}
    stale = {"reward": 1.0, "exit_status": "Submitted", "discard": False}
    outcome = await run(METADATA | from_miles | stale)
    (request,) = server.requests
    assert request.path == "/run"
    assert request.body == {
        **METADATA,
        "base_url": "http://10.0.0.1:30000/sessions/s1/v1",
        "model": "openai/glm-4.7-flash",
        "sampling_params": {"temperature": 0.8, "max_tokens": 64},
        "max_seq_len": 8192,
        "session_server_id": "10.0.0.1:30000",
        "session_server_instance_id": "i-1",
    }
    assert "authorization" not in request.headers
    assert outcome == {
        "reward": 1.0,
        "exit_status": "Submitted",
        "discard": False,
        "eval_report": {},
        "agent_metrics": {},
    }


async def test_what_is_not_known_is_not_sent(server: AgentServerStub) -> None:
    await swe_agent_function.run("http://h:1/v1", "prompt", {})
    assert server.requests[0].body == {"base_url": "http://h:1/v1", "model": "openai/model", "sampling_params": {}}


@pytest.mark.parametrize(
    ("base_url", "external", "seen"),
    [
        ("http://10.0.0.1:30000/sessions/s1", None, "http://10.0.0.1:30000/sessions/s1/v1"),
        ("http://10.0.0.1:30000/sessions/s1/", None, "http://10.0.0.1:30000/sessions/s1/v1"),
        ("http://10.0.0.1:30000/sessions/s1/v1", None, "http://10.0.0.1:30000/sessions/s1/v1"),
        ("http://[fd00::1]:30000/sessions/s1", None, "http://[fd00::1]:30000/sessions/s1/v1"),
        ("http://10.0.0.1:30000/sessions/s1", "gpu.example", "http://gpu.example:30000/sessions/s1/v1"),
        ("http://10.0.0.1:30000/sessions/s1", "fd00::7", "http://[fd00::7]:30000/sessions/s1/v1"),
    ],
)
async def test_the_session_is_named_as_the_agent_can_reach_it(
    server: AgentServerStub, monkeypatch: pytest.MonkeyPatch, base_url: str, external: str | None, seen: str
) -> None:
    if external:
        monkeypatch.setenv("MILES_ROUTER_EXTERNAL_HOST", external)
    await run(base_url=base_url)
    assert server.requests[0].body["base_url"] == seen


async def test_the_older_names_of_the_settings_work(server: AgentServerStub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENT_SERVER_URL")
    monkeypatch.setenv("SWE_AGENT_URL", server.url)
    monkeypatch.setenv("SWE_AGENT_MODEL_NAME", "openai/already")
    await run()
    assert server.requests[0].body["model"] == "openai/already"


async def test_the_token_file_gives_the_bearer_token(
    server: AgentServerStub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    monkeypatch.setenv("AGENT_SERVER_TOKEN_FILE", str(tmp_path / "token"))
    await run()
    assert server.requests[0].headers["authorization"] == "Bearer s3cret"


@pytest.mark.parametrize("content", [None, "", "two\nlines", "schlüssel"])
async def test_a_token_that_cannot_be_read_is_a_named_discard(
    server: AgentServerStub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str | None
) -> None:
    if content is not None:
        (tmp_path / "token").write_text(content)
    monkeypatch.setenv("AGENT_SERVER_TOKEN_FILE", str(tmp_path / "token"))
    outcome = await run()
    assert (outcome["exit_status"], outcome["discard"]) == ("RequestRejected", True)
    assert not server.requests


async def test_the_lifetime_of_sandboxes_goes_with_the_request(
    server: AgentServerStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOX_AUTO_STOP_MINUTES", "150")
    monkeypatch.setenv("SANDBOX_AUTO_DELETE_MINUTES", "a day")
    await run()
    (request,) = server.requests
    assert request.body["sandbox_auto_stop_minutes"] == 150
    assert "sandbox_auto_delete_minutes" not in request.body


@pytest.mark.parametrize("bad", [{"x": {1, 2}}, {"x": float("nan")}, {"max_seq_len": "many"}])
async def test_a_record_that_json_cannot_hold_is_a_named_discard(server: AgentServerStub, bad: dict[str, Any]) -> None:
    assert (await run(METADATA | bad))["exit_status"] == "RequestRejected"
    assert not server.requests


@pytest.mark.parametrize("base_url", ["", "no-scheme", None])
async def test_a_session_without_an_address_is_a_named_discard(server: AgentServerStub, base_url: Any) -> None:
    assert (await run(base_url=base_url))["exit_status"] == "RequestRejected"
    assert not server.requests


# ---- what comes back ----


@pytest.mark.parametrize(
    ("answer", "status", "reward"),
    [
        (Answer('{"exit_status": "VerifierError"}'), "VerifierError", 0.0),
        (Answer('{"exit_status": "SandboxUnavailable"}'), "SandboxUnavailable", None),
        (Answer('{"reward": -0.5, "exit_status": "Submitted"}'), "Submitted", -0.5),
        (Answer("{}"), "InvalidReply", None),
        (Answer("[]"), "InvalidReply", None),
        (Answer("not json"), "InvalidReply", None),
        (Answer(""), "InvalidReply", None),
        (Answer("[" * 100_000), "InvalidReply", None),
        (Answer('{"reward": NaN}'), "InvalidReply", None),
        (Answer('{"reward": "NaN"}'), "InvalidReply", None),
        (Answer('{"reward": Infinity}'), "InvalidReply", None),
        (Answer('{"reward": 1e999}'), "InvalidReply", None),
        (Answer('{"reward": true}'), "InvalidReply", None),
        (Answer('{"reward": "1"}'), "InvalidReply", None),
        (Answer('{"reward": {"reward": 1}}'), "InvalidReply", None),
        (Answer("bad gateway", 502), "ServerUnreachable", None),
        (Answer("unavailable", 503), "ServerUnreachable", None),
        (Answer("gateway time-out", 504), "ServerUnreachable", None),
        (Answer("boom", 500), "RequestRejected", None),
        (Answer("unknown instance_id", 404), "RequestRejected", None),
        (Answer("malformed", 422), "RequestRejected", None),
        (Answer("queue full", 429), "RequestRejected", None),
        (Answer("go away", 401), "RequestRejected", None),
        (Answer(reset=True), "ServerUnreachable", None),
        (Answer(reset=True, delay=0.05), "ServerUnreachable", None),
    ],
)
async def test_every_reply_has_a_name_and_none_raises(
    server: AgentServerStub, answer: Answer, status: str, reward: float | None
) -> None:
    server.answer = lambda request: answer
    outcome = await run()
    assert (outcome["exit_status"], outcome["reward"], outcome["discard"]) == (status, reward, reward is None)
    assert len(server.requests) == 1, "a started trial is never retried"


async def test_the_reason_of_a_refusal_is_kept(server: AgentServerStub) -> None:
    server.answer = lambda request: Answer('{"detail": "instance_id is 300 characters long"}', 422)
    assert "300 characters" in (await run())["eval_report"]["reason"]


async def test_the_outcome_is_also_told_beside_miles(server: AgentServerStub) -> None:
    with listening() as reported:
        await run()
    assert [outcome.exit_status for outcome in reported] == ["Submitted"]


# ---- a server that is not there ----


async def test_a_server_that_comes_up_late_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    monkeypatch.setenv("AGENT_SERVER_URL", f"http://user:hidden@127.0.0.1:{port}")
    monkeypatch.setenv("AGENT_SERVER_WAIT", "20")
    # The wait is not the trial's time.
    monkeypatch.setenv("AGENT_TRIAL_TIMEOUT", "0.5")
    trials = [asyncio.create_task(run()) for _ in range(8)]
    await asyncio.sleep(0.8)
    async with AgentServerStub().serving(port) as stub:
        outcomes = await asyncio.gather(*trials)
        assert [outcome["exit_status"] for outcome in outcomes] == ["Submitted"] * 8
        assert len(stub.requests) == 8
    assert sum("waiting up to" in record.message for record in caplog.records) == 1
    assert "hidden" not in caplog.text


async def test_a_server_that_stays_away_is_a_discard_after_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_SERVER_URL", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("AGENT_SERVER_WAIT", "0.6")
    begin = asyncio.get_running_loop().time()
    outcome = await run()
    assert (outcome["exit_status"], outcome["discard"]) == ("ServerUnreachable", True)
    assert 0.5 < asyncio.get_running_loop().time() - begin < 3.0


@pytest.mark.parametrize("refusal", [Answer("full", 429), Answer('{"detail": "ending", "started": false}', 503)])
async def test_a_server_that_started_no_trial_is_asked_again(
    server: AgentServerStub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, refusal: Answer
) -> None:
    monkeypatch.setenv("AGENT_SERVER_WAIT", "20")
    server.answer = lambda request: refusal if len(server.requests) < 3 else Answer()
    assert (await run())["exit_status"] == "Submitted"
    assert len(server.requests) == 3
    assert sum("waiting up to" in record.message for record in caplog.records) == 1


@pytest.mark.parametrize(
    ("refusal", "status"),
    [
        (Answer("full", 429), "RequestRejected"),
        (Answer('{"detail": "ending", "started": false}', 503), "ServerUnreachable"),
    ],
)
async def test_a_server_that_goes_on_refusing_is_a_discard_after_the_wait(
    server: AgentServerStub, monkeypatch: pytest.MonkeyPatch, refusal: Answer, status: str
) -> None:
    monkeypatch.setenv("AGENT_SERVER_WAIT", "0.6")
    server.answer = lambda request: refusal
    outcome = await run()
    assert (outcome["exit_status"], outcome["discard"]) == (status, True)
    assert outcome["eval_report"]["reason"].startswith(f"HTTP {refusal.status}: ")
    assert len(server.requests) > 1


async def test_a_gateways_503_is_not_asked_again(server: AgentServerStub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_SERVER_WAIT", "20")
    server.answer = lambda request: Answer('{"started": true}', 503)
    assert (await run())["exit_status"] == "ServerUnreachable"
    assert len(server.requests) == 1


@pytest.mark.parametrize("url", ["no-scheme", "ftp://127.0.0.1", "http://[::1", "http://127.0.0.1:99999999"])
async def test_a_server_url_that_cannot_be_used_is_a_discard_at_once(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("AGENT_SERVER_URL", url)
    async with asyncio.timeout(2):
        assert (await run())["exit_status"] == "ServerUnreachable"


# ---- ending a trial ----


async def test_the_trial_timeout_closes_the_connection(
    server: AgentServerStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_TRIAL_TIMEOUT", "0.2")
    server.answer = lambda request: Answer(delay=30)
    outcome = await run()
    assert (outcome["exit_status"], outcome["discard"]) == ("ServerTimeout", True)
    await until(lambda: server.hung_up == 1)


async def test_cancellation_propagates_ends_the_trial_and_leaves_the_client_working(server: AgentServerStub) -> None:
    server.answer = lambda request: Answer(delay=30)
    trial = asyncio.create_task(run())
    await until(lambda: len(server.requests) == 1)
    trial.cancel()
    with pytest.raises(asyncio.CancelledError):
        await trial
    await until(lambda: server.hung_up == 1)
    server.answer = lambda request: Answer()
    assert (await run())["exit_status"] == "Submitted"


# ---- many at a time ----


async def test_sixty_four_trials_run_at_a_time_without_a_cap(server: AgentServerStub) -> None:
    server.answer = lambda request: Answer(delay=1.0)
    outcomes = await asyncio.gather(*(run() for _ in range(64)))
    assert {outcome["exit_status"] for outcome in outcomes} == {"Submitted"}
    assert server.most_open == 64


async def test_a_cap_holds_and_waiting_for_it_is_not_the_trials_time(
    server: AgentServerStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_SERVER_MAX_CONNECTIONS", "2")
    monkeypatch.setenv("AGENT_TRIAL_TIMEOUT", "0.5")
    server.answer = lambda request: Answer(delay=0.2)
    outcomes = await asyncio.gather(*(run() for _ in range(8)))
    assert {outcome["exit_status"] for outcome in outcomes} == {"Submitted"}
    assert server.most_open == 2


@pytest.mark.parametrize("cap", ["0", "-1", "x", "2.5"])
async def test_a_cap_that_makes_no_sense_is_one_warning_and_no_cap(
    server: AgentServerStub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, cap: str
) -> None:
    monkeypatch.setenv("AGENT_SERVER_MAX_CONNECTIONS", cap)
    server.answer = lambda request: Answer(delay=0.3)
    outcomes = await asyncio.gather(*(run() for _ in range(12)))
    assert {outcome["exit_status"] for outcome in outcomes} == {"Submitted"}
    assert server.most_open == 12
    assert sum(f"AGENT_SERVER_MAX_CONNECTIONS={cap}" in record.message for record in caplog.records) == 1


def test_a_second_event_loop_gets_a_client_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async def once() -> str:
        async with AgentServerStub().serving() as stub:
            monkeypatch.setenv("AGENT_SERVER_URL", stub.url)
            return (await run())["exit_status"]

    assert asyncio.run(once()) == asyncio.run(once()) == "Submitted"


# ---- abort ----

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


def test_the_module_needs_nothing_heavy() -> None:
    source = Path(swe_agent_function.__file__).read_text()
    assert not any(f"import {name}" in source for name in ("torch", "ray", "miles", "launcher"))
    assert json.dumps(sorted(SETTINGS[:8])), "the settings are named in the module's docstring"
    assert all(name in (swe_agent_function.__doc__ or "") for name in SETTINGS if not name.endswith("_FILE"))

"""The agent function against a server that misbehaves in every way the failure table names."""

import asyncio

import pytest

from tests.agent_server_stub import AgentServerStub, Answer
from tests.free_port import free_port
from tests.swe_agent_function.calls import run
from trajectory.report import listening


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
    assert asyncio.get_running_loop().time() - begin > 0.5


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

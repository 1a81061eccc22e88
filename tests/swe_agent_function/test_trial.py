"""A trial that is ended from outside, and many trials at a time."""

import asyncio

import pytest

from tests.agent_server_stub import AgentServerStub, Answer, until
from tests.swe_agent_function.calls import run


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

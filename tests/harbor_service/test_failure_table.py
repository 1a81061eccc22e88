"""Every row of the exit status table, walked: real client, real server process, real Harbor trial and sandbox.

The rows are read from `trajectory.exit_status`; one that no test reaches fails the last test here. What a trial
needs to fail is planted by task folders, a Harbor environment and agents of our own (`failures/`). STUBS: the model's
endpoint, and for replies that break the contract the agent server. Three rows are the hooks' own (`HOOK_ROWS`).
"""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import swe_agent_function
from tests.agent_server_stub import AgentServerStub, Answer
from tests.harbor_service.failures.cases import AGENT_TIMEOUT, SETUP_TIMEOUT, Case, exception_rows, trial_cases
from tests.harbor_service.harbor_model_stub import ModelStub, Reply, bash
from tests.harbor_service.harbor_server_process import AgentServerProcess, write_task
from trajectory.exit_status import CANCELLATIONS, STATUSES, Worth
from trajectory.outcome import Outcome
from trajectory.sample import make_sample

ENVIRONMENT = "tests.harbor_service.failures.faulty_environment:FaultyEnvironment"
# Given by generate.py, not by the way to a trial and back; walked with Miles' real classes in tests/miles_hooks.
HOOK_ROWS = {"AgentFunctionFailed", "SessionUnusable", "NoReward"}
CASES = trial_cases()
_reached: set[str] = set()


class FailingServer:
    """A server with a task for each case and the model's stub that plays each case's part."""

    def __init__(self, folder: Path) -> None:
        tasks = folder / "tasks"
        for name, case in CASES.items():
            case.write(tasks, name)
        write_task(tasks, "waits")
        self.model = ModelStub(self._reply)
        flags = ("--environment", ENVIRONMENT, "--max-concurrent", "12")
        limits = ("--agent-timeout", str(AGENT_TIMEOUT), "--setup-timeout", str(SETUP_TIMEOUT))
        self.process = AgentServerProcess(folder, tasks, *flags, *limits)

    def _reply(self, body: dict[str, Any]) -> Reply:
        texts = [message["content"] for message in body["messages"]]
        asked = max(number for number, text in enumerate(texts) if text.startswith(("case ", "Create the folder")))
        if not texts[asked].startswith("case "):
            return Reply("```bash\nsleep 600\n```", delay=30)
        replies = CASES[texts[asked].removeprefix("case ").strip()].replies
        return replies[min((len(texts) - asked) // 2, len(replies) - 1)]

    def close(self) -> None:
        self.model.close()
        self.process.close()


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FailingServer]:
    server = FailingServer(tmp_path_factory.mktemp("failing"))
    yield server
    server.close()


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_SERVER_WAIT", "0")
    for name in ("AGENT_TRIAL_TIMEOUT", "AGENT_SERVER_TOKEN_FILE", "MILES_ROUTER_EXTERNAL_HOST"):
        monkeypatch.delenv(name, raising=False)


async def sample_of(instance_id: str, base_url: str, **metadata: Any) -> dict[str, Any]:
    """The sample of one trajectory, as the local engine makes it of the agent function's answer."""
    record = {"instance_id": instance_id, "agent_name": "shell", **metadata}
    answer = await swe_agent_function.run(base_url, "prompt", {"temperature": 0.5, "max_tokens": 64}, record)
    outcome = Outcome(**answer)
    return make_sample(
        group_index=0,
        index=0,
        prompt="prompt",
        metadata=record,
        tokens=[1, 2, 3],
        response_length=2,
        response="ab",
        loss_mask=[1, 1],
        rollout_log_probs=[-0.1, -0.2],
        weight_versions=["1"],
        truncated=False,
        outcome=outcome,
    )


def check(sample: dict[str, Any], status: str, reward: float | None) -> None:
    """The sample says what the table says: discarded is aborted, without a reward; scored has one."""
    metadata = sample["metadata"]
    assert metadata["exit_status"] == status, metadata
    worth = STATUSES[status].worth
    assert metadata["discard"] is (worth is Worth.DISCARDED)
    assert sample["status"] == ("aborted" if worth is Worth.DISCARDED else "completed")
    assert sample["reward"] == metadata["reward"] == reward
    assert (reward is None) is (worth is Worth.DISCARDED)
    _reached.add(status)


def recorded(sample: dict[str, Any]) -> str | None:
    """The exception as the outcome names it: from Harbor's result, or from the reason of a trial that never was."""
    report = sample["metadata"]["eval_report"]
    reason = str(report.get("reason", ""))
    return report["error"]["type"] if "error" in report else reason.partition(":")[0] or None


async def test_every_ending_of_a_trial_becomes_the_sample_that_the_table_says(
    failing: FailingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_SERVER_URL", failing.process.url)

    async def walk(name: str, case: Case) -> str | None:
        fields = {"agent_name": case.agent} | ({"agent_options": case.options} if case.options else {})
        sample = await sample_of(name, failing.model.base_url, **fields)
        try:
            check(sample, case.status, case.reward)
            assert recorded(sample) == case.exception or case.exception is None, sample["metadata"]
        except AssertionError as error:
            return f"{name}: {error}"
        return None

    problems = await asyncio.gather(*(walk(name, case) for name, case in CASES.items()))
    wrong = [problem for problem in problems if problem]
    assert not wrong, "\n".join(wrong)
    walked = {case.exception for case in CASES.values()}
    assert set(exception_rows()) <= walked
    health = failing.process.health()
    assert (health["running"], health["queued"]) == (0, 0)


async def test_an_agent_that_gives_up_on_answers_in_a_wrong_form_is_scored(
    failing: FailingServer, model: ModelStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_SERVER_URL", failing.process.url)
    model.answer = lambda body: Reply("I do not know what to do.")
    check(await sample_of("waits", model.base_url, agent_name="mini-swe-agent"), "RepeatedFormatError", 0.0)


async def test_a_flushed_trial_is_aborted(failing: FailingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_SERVER_URL", failing.process.url)
    waiting = asyncio.create_task(sample_of("waits", failing.model.base_url, session_server_instance_id="mine"))
    async with asyncio.timeout(60):
        while (await asyncio.to_thread(failing.process.health))["running"] == 0:
            await asyncio.sleep(0.02)
    flushed = await asyncio.to_thread(
        failing.process.client.post, "/flush", json={"session_server_instance_id": "mine"}
    )
    assert flushed.json() == {"cancelled": 1}
    check(await waiting, "Aborted", None)
    assert set(CANCELLATIONS.values()) == {"Aborted"}


async def test_a_trial_over_the_clients_own_limit_ends_on_the_server_too(
    failing: FailingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_SERVER_URL", failing.process.url)
    monkeypatch.setenv("AGENT_TRIAL_TIMEOUT", "0.5")
    check(await sample_of("waits", failing.model.base_url), "ServerTimeout", None)
    async with asyncio.timeout(60):
        while (await asyncio.to_thread(failing.process.health))["running"]:
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("instance_id", "metadata"),
    [("nowhere", {}), ("waits", {"agent_name": "gpt"}), ("waits", {"agent_options": {"max_turns": 0}})],
)
async def test_what_the_server_refuses_is_rejected(
    failing: FailingServer, monkeypatch: pytest.MonkeyPatch, instance_id: str, metadata: dict[str, Any]
) -> None:
    monkeypatch.setenv("AGENT_SERVER_URL", failing.process.url)
    check(await sample_of(instance_id, failing.model.base_url, **metadata), "RequestRejected", None)


async def test_a_server_that_is_not_there_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AGENT_SERVER_URL", f"http://127.0.0.1:{unused.getsockname()[1]}")
        check(await sample_of("any", "http://127.0.0.1:9/v1"), "ServerUnreachable", None)


async def test_a_server_that_is_killed_in_mid_trial_is_unreachable(
    tmp_path: Path, tasks_dir: Path, model: ModelStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.answer = lambda body: Reply(bash("true").body, delay=60)
    server = AgentServerProcess(tmp_path, tasks_dir)
    monkeypatch.setenv("AGENT_SERVER_URL", server.url)
    waiting = asyncio.create_task(sample_of("mkdir-1", model.base_url))
    async with asyncio.timeout(60):
        while not model.requests:
            await asyncio.sleep(0.02)
    server.process.kill()
    check(await waiting, "ServerUnreachable", None)
    server.process.wait()
    server.close()


CONTRACT = [
    (Answer("bad gateway", 502), "ServerUnreachable", None),
    (Answer("unavailable", 503), "ServerUnreachable", None),
    (Answer("too late", 504), "ServerUnreachable", None),
    (Answer("boom", 500), "RequestRejected", None),
    (Answer("full", 429), "RequestRejected", None),
    (Answer("not json"), "InvalidReply", None),
    (Answer("[]"), "InvalidReply", None),
    (Answer("{}"), "InvalidReply", None),
    *((Answer(f'{{"reward": {value}}}'), "InvalidReply", None) for value in ("NaN", "1e999", "true", '"1"', "{}")),
]
# A status of the table without a reward: scored 0 where the table scores it, else discarded.
CONTRACT += [
    (Answer(f'{{"exit_status": "{name}"}}'), name, 0.0 if row.worth is Worth.SCORED else None)
    for name, row in STATUSES.items()
]


@pytest.mark.parametrize(("answer", "status", "reward"), CONTRACT)
async def test_every_reply_becomes_the_sample_that_the_table_says(
    monkeypatch: pytest.MonkeyPatch, answer: Answer, status: str, reward: float | None
) -> None:
    async with AgentServerStub(lambda request: answer).serving() as stub:
        monkeypatch.setenv("AGENT_SERVER_URL", stub.url)
        reached = set(_reached)
        check(await sample_of("any", "http://127.0.0.1:9/v1"), status, reward)
        if answer.body.startswith('{"exit_status"'):
            # A stub that says a name proves nothing about how one gets there.
            _reached.clear()
            _reached.update(reached)


def test_no_row_of_the_table_is_left_out() -> None:
    assert set(STATUSES) - _reached == HOOK_ROWS

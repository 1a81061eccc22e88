# Miles is on the path only of the process that runs this file.
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
"""Trajectories through Miles' generate, a proxy that spoils connections and an agent server that dies under load.

Run by tests/test_chaos.py in a process of its own. Real: Miles' agentic generate, our agent function, TCP, the agent
server with harbor's trials in sandboxes. STUBS: those of miles_parts; the session server also answers as the model.
"""

import asyncio
import json
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from miles.utils.types import Sample

import generate
from tests.agent_server_stub import AgentServerStub, Answer, Request
from tests.chaos_proxy import ChaosProxy, Fate
from tests.harbor_service.harbor_model_stub import bash
from tests.harbor_service.harbor_server_process import AgentServerProcess, write_task
from tests.harbor_service.server_log import ended_trials
from tests.miles_hooks.miles_parts import SessionServerStub, Setup
from tests.outcomes_on_disk import read_outcomes
from trajectory.exit_status import STATUSES

TRAJECTORIES = 240
AT_ONCE = 24
SEED = int(os.environ.get("CHAOS_SEED", "5"))
FATES = {
    Fate.PASSES: 8.0,
    Fate.SLOW: 1.0,
    Fate.RESET_AT_ONCE: 0.5,
    Fate.REQUEST_CUT: 1.0,
    Fate.REQUEST_CORRUPTED: 1.0,
    Fate.RESET_DURING_TRIAL: 1.0,
    Fate.REPLY_CUT: 1.0,
    Fate.REPLY_CORRUPTED: 1.0,
    Fate.REPLY_WITHHELD: 0.5,
}
AGENTS = ("shell", "oracle", "shell", "nop")
# Said by this side alone; every other status is the server's word.
CLIENT_SIDE = frozenset({"ServerUnreachable", "RequestRejected", "ServerTimeout", "InvalidReply"})


@dataclass
class Servers:
    """One agent server after the other at one port."""

    folder: Path
    tasks: Path
    port: int = 0
    ended: list[AgentServerProcess] = field(default_factory=list[AgentServerProcess])
    now: AgentServerProcess | None = None

    async def start(self) -> None:
        folder = self.folder / f"server-{len(self.ended)}"
        folder.mkdir(parents=True)
        flags = ("--port", str(self.port), "--max-concurrent", "4", "--shutdown-grace", "20")
        # The path of this process has Miles' packages on it, which are not the server's.
        self.now = await asyncio.to_thread(
            AgentServerProcess, folder, self.tasks, *flags, environ={"PYTHONPATH": "", "AGENT_SERVER_TOKEN_FILE": ""}
        )
        self.port = int(self.now.url.rpartition(":")[2])

    async def end(self, how: signal.Signals) -> None:
        assert self.now is not None
        self.now.process.send_signal(how)
        await asyncio.to_thread(self.now.process.wait, 60)
        self.now.close()
        self.ended.append(self.now)
        self.now = None

    def trials(self) -> dict[str, list[str]]:
        """instance_id -> exit statuses that all of them together logged."""
        found: dict[str, list[str]] = {}
        for server in [*self.ended, *([self.now] if self.now else [])]:
            for name, statuses in ended_trials(server.log).items():
                found.setdefault(name, []).extend(statuses)
        return found


class ModelAndSessions(SessionServerStub):
    """STUB: the shell agent's model as well, which takes its time so that trials overlap with every fault."""

    def __init__(self) -> None:
        super().__init__()
        self._chance = random.Random(SEED)

    def answer(self, request: Request) -> Answer:
        if request.path.endswith("/chat/completions"):
            return Answer(bash("mkdir target").body, delay=self._chance.uniform(0.1, 1.5))
        return super().answer(request)


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncGenerator[Servers]:
    for number in range(TRAJECTORIES + 1):
        write_task(tmp_path / "tasks", f"t-{number}")
    servers = Servers(tmp_path / "servers", tmp_path / "tasks")
    await servers.start()
    yield servers
    if servers.now is not None:
        servers.now.close()


@pytest.fixture(autouse=True)
async def model(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[None]:
    both = AgentServerStub(answer=ModelAndSessions().answer)
    async with both.serving():
        setup.args.session_server_port = both.port
        monkeypatch.setenv("AGENT_SERVER_WAIT", "120")
        monkeypatch.setenv("AGENT_TRIAL_TIMEOUT", "40")
        monkeypatch.setenv("MAX_CONSECUTIVE_DISCARDS", "100000")
        yield


def prompt(index: int) -> Sample:
    metadata = {"instance_id": f"t-{index}", "agent_name": AGENTS[index % len(AGENTS)]}
    return Sample(group_index=index // 2, index=index, prompt="do", metadata=metadata)


async def test_every_trajectory_ends_with_one_name_and_both_sides_count_the_same(
    setup: Setup, servers: Servers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    chance = random.Random(SEED)
    samples: dict[int, Any] = {}
    cancelled: set[int] = set()
    places = asyncio.Semaphore(AT_ONCE)

    async def one(index: int) -> None:
        async with places:
            task = asyncio.create_task(setup.one(prompt(index)))
            if chance.random() < 0.06:
                await asyncio.wait({task}, timeout=chance.uniform(0, 1.5))
                task.cancel()
            try:
                samples[index] = await task
            except asyncio.CancelledError:
                cancelled.add(index)

    async def restarts(proxy: ChaosProxy) -> None:
        for share, how in ((0.2, signal.SIGKILL), (0.5, signal.SIGTERM), (0.8, signal.SIGKILL)):
            while len(samples) + len(cancelled) < share * TRAJECTORIES:
                await asyncio.sleep(0.05)
            if how is signal.SIGTERM:
                proxy.refuse()
            await servers.end(how)
            proxy.refuse()
            await servers.start()
            await proxy.listen()

    async with ChaosProxy(servers.port, FATES, SEED).serving() as proxy:
        monkeypatch.setenv("AGENT_SERVER_URL", proxy.url)
        await asyncio.gather(restarts(proxy), *(one(index) for index in range(TRAJECTORIES)))
        assert set(proxy.met) == set(FATES), "every fault struck"
        assert "waiting up to" in caplog.text, "and a server that was not there was waited for"

        assert servers.now is not None
        async with asyncio.timeout(60):
            while (health := await asyncio.to_thread(servers.now.health))["running"] + health["queued"]:
                await asyncio.sleep(0.1)

        lines = {line["index"]: line for line in read_outcomes(setup.traces)}
        assert len(read_outcomes(setup.traces)) == TRAJECTORIES == len(lines)
        assert generate._rollout.metrics(setup.args)["agent/trajectories"] == TRAJECTORIES
        trials = servers.trials()
        for index, line in sorted(lines.items()):
            agree(line, samples.get(index), trials.pop(f"t-{index}", []), index in cancelled)
        assert not trials, "a trial that nobody asked for"

        proxy.fates = {Fate.PASSES: 1.0}
        after = await setup.one(prompt(TRAJECTORIES))
        assert after.metadata["exit_status"] == "CommandSucceeded", "client and server work afterwards"
    report(lines, servers.trials(), proxy.met, len(cancelled))


def agree(line: dict[str, Any], sample: Any, trials: list[str], was_cancelled: bool) -> None:
    """What the two sides say of one trajectory fits together."""
    status = line["exit_status"]
    assert status in STATUSES, line
    assert line["discard"] == (line["reward"] is None), line
    assert len(trials) <= 1, f"a started trial was started again: {line} {trials}"
    if sample is None:
        assert was_cancelled and status == "Aborted", line
        return
    assert (sample.metadata["exit_status"], sample.metadata["discard"]) == (status, line["discard"])
    assert (sample.status is Sample.Status.ABORTED) == line["discard"]
    if status == "RequestRejected":
        assert trials == [], f"refused, and run all the same: {line} {trials}"
    elif status == "InvalidReply":
        assert len(trials) == 1, f"there was a reply, so there was a trial: {line}"
    elif status == "Aborted":
        assert trials in ([], ["Aborted"]), f"ended by the server, in the queue or later: {line} {trials}"
    elif status not in CLIENT_SIDE:
        assert trials == [status], f"the server says otherwise: {line} {trials}"


def report(lines: dict[int, Any], trials: dict[str, list[str]], met: Counter[Fate], cancelled: int) -> None:
    ours = Counter(line["exit_status"] for line in lines.values())
    theirs = Counter(status for statuses in trials.values() for status in statuses)
    print(json.dumps({"client": ours, "server": theirs, "connections": met, "cancelled": cancelled}))

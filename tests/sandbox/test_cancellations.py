"""Trials that are cancelled at any moment, build to verifier, leave no process, mount, user id or folder."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from harbor_service.trial_desk import TrialDesk
from tests.sandbox.hostile_trial import HostileTask

AT_ONCE = 4
# What is there to end: a forest of processes in sessions of their own that ignore signals, one of them busy.
ATTACK = (
    "for i in 1 2 3; do setsid bash -c 'trap \"\" TERM HUP INT; (sleep 500 &) ; while :; do sleep 0.1; done'"
    " > /dev/null 2>&1 & done; (while :; do :; done) & sleep 0.2; mkfifo /app/p; echo right > /app/answer"
)


def owners_of_processes() -> set[int]:
    owners: set[int] = set()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                owners.add(entry.stat().st_uid)
            except OSError:
                continue
    return owners


def processes_naming(path: Path) -> list[bytes]:
    texts: list[bytes] = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                texts.append(Path(entry.path, "cmdline").read_bytes())
            except OSError:
                continue
    return [text for text in texts if os.fsencode(path) in text]


@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.long)])
async def test_random_cancellations_leave_nothing(count: int, base_dir: Path, tmp_path: Path) -> None:
    task = HostileTask(tmp_path, base_dir)
    task.prepare(ATTACK)
    (await task.run()).as_dict()
    descriptors = len(os.listdir("/proc/self/fd"))
    mounts = Path("/proc/self/mountinfo").read_text().count("\n")
    desk = TrialDesk(AT_ONCE)
    chance = random.Random(count)
    users: set[int] = set()
    finished = cancelled = 0

    async def one() -> None:
        nonlocal finished, cancelled
        entry = desk.start(task.task.name, "oracle", "test", lambda _: task.run())
        while entry.started_at is None:
            await asyncio.sleep(0.01)
        await asyncio.sleep(chance.choice([0.02, 0.1, 0.4, 0.8]) * 2 * chance.random())
        users.update(path.stat().st_uid for path in base_dir.glob("trial-*"))
        desk.cancel(entry, "the test")
        outcome = await desk.outcome_of(entry)
        finished += outcome.exit_status == "Submitted"
        cancelled += outcome.exit_status == "Aborted"

    await asyncio.gather(*(one() for _ in range(count)))
    assert finished + cancelled == count
    assert cancelled > count / 2
    assert list(base_dir.glob("trial-*")) == []
    assert processes_naming(base_dir) == []
    assert users
    if os.geteuid() == 0:
        assert users.isdisjoint(owners_of_processes() | {0})
    assert Path("/proc/self/mountinfo").read_text().count("\n") == mounts
    assert len(os.listdir("/proc/self/fd")) == descriptors

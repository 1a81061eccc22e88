"""Tasks whose verifier has a sandbox of its own: of the agent's only the declared artifacts get there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.sandbox.hostile_trial import PAYLOAD, HostileTask

HONEST = "echo right > /app/answer"


@pytest.fixture(params=["own_dockerfile", "the_tasks_dockerfile"])
def task(request: pytest.FixtureRequest, base_dir: Path, tmp_path: Path) -> HostileTask:
    task = HostileTask(tmp_path, base_dir)
    toml = task.task / "task.toml"
    text = toml.read_text().replace('"/app/out"', '"/app/answer"')
    if request.param == "own_dockerfile":
        text += "[verifier.environment]\nbuild_timeout_sec = 60.0\n"
        (task.task / "tests" / "Dockerfile").write_text(
            "FROM x\nWORKDIR /app\nCOPY . /tests\nRUN chmod +x /tests/test.sh\n"
        )
    else:
        text = text.replace("[verifier]\n", '[verifier]\nenvironment_mode = "separate"\n')
    toml.write_text(text)
    return task


async def test_the_artifact_is_judged(task: HostileTask) -> None:
    outcome = await task.outcome(HONEST)
    assert (outcome.reward, outcome.exit_status) == (1.0, "Submitted"), outcome


async def test_nothing_done_is_worth_nothing(task: HostileTask) -> None:
    outcome = await task.outcome("true")
    assert (outcome.reward, outcome.exit_status) == (0.0, "Submitted"), outcome


async def test_files_and_processes_of_the_agent_do_not_get_there(task: HostileTask) -> None:
    (task.task / "tests" / "test.sh").write_text(
        "#!/bin/bash\nls /app/payload /tmp/left /logs/agent/left /home/left && echo 1 > /logs/verifier/reward.txt"
        " || echo 0 > /logs/verifier/reward.txt\npgrep -f payload && echo 1 > /logs/verifier/reward.txt\nsleep 0.2\n"
    )
    outcome = await task.outcome(
        PAYLOAD + "touch /tmp/left /logs/agent/left /home/left; echo 1 > /logs/verifier/reward.txt; /app/payload"
    )
    assert (outcome.reward, outcome.exit_status) == (0.0, "Submitted"), outcome


@pytest.mark.long
@pytest.mark.parametrize(
    "artifact",
    [
        "ln -s /tests/check.py /app/answer",
        "ln -s /etc/hostname /app/answer",
        "mkfifo /app/answer",
        "mkdir -p /app/answer/a; ln -s / /app/answer/l; mkfifo /app/answer/p; touch $'/app/answer/\\xff'",
        "truncate -s 10G /app/answer; truncate -s 100M /app/answer",
    ],
)
async def test_an_odd_artifact_is_worth_nothing(task: HostileTask, artifact: str) -> None:
    outcome = await task.outcome(artifact)
    assert (outcome.reward, outcome.exit_status) == (0.0, "Submitted"), outcome


async def test_files_in_the_place_of_folders_do_not_keep_the_tests_from_judging(task: HostileTask) -> None:
    toml = task.task / "task.toml"
    toml.write_text(toml.read_text().replace('"/app/answer"', '"/app", "/srv/a", "/srv/b"'))
    for folder in ("environment", "tests"):
        if (task.task / folder / "Dockerfile").exists():
            with (task.task / folder / "Dockerfile").open("a") as dockerfile:
                dockerfile.write(
                    "RUN mkdir -p /app/folder/deep /app/link /srv/b/c && echo x > /app/file && echo x > /srv/a\n"
                )
    attack = "cd /app; rm -r folder file link; echo x > folder; mkdir file; echo x > file/y; ln -s / link"
    outcome = await task.outcome(f"{attack}; cd /srv; rm -r a b; mkdir a; echo x > a/x; echo x > b; {HONEST}")
    assert (outcome.reward, outcome.exit_status) == (1.0, "Submitted"), outcome


async def test_a_cancelled_trial_leaves_neither_sandbox(task: HostileTask, base_dir: Path) -> None:
    (task.task / "tests" / "test.sh").write_text("echo > /logs/verifier/started; sleep 60\n")
    running = asyncio.create_task(task.outcome(HONEST))
    await asyncio.sleep(1.5)
    assert not running.done()
    assert len(list(base_dir.glob("trial-*"))) == 1
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert list(base_dir.glob("trial-*")) == []

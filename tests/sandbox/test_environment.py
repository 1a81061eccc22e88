"""LocalEnvironment in Harbor: real trials of a task made here."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from harbor.environments.base import SandboxBuildFailedError
from harbor.models.task.config import EnvironmentConfig
from harbor.models.trial.config import AgentConfig, TaskConfig, TrialConfig
from harbor.models.trial.config import EnvironmentConfig as TrialEnvironment
from harbor.models.trial.paths import TrialPaths
from harbor.trial.hooks import TrialEvent
from harbor.trial.trial import Trial

from sandbox.environment import CommandTimedOut, LocalEnvironment

TASK_TOML = 'schema_version = "1.2"\n[agent]\ntimeout_sec = 60.0\n[verifier]\ntimeout_sec = 30.0\n'
TEST_SH = """#!/bin/bash
if [[ "$(cat /app/answer.txt 2>/dev/null)" == harbor && $GREETING == hello ]]; then echo 1; else echo 0; fi \
> /logs/verifier/reward.txt
"""


@pytest.fixture
def task(tmp_path: Path) -> Path:
    folder = tmp_path / "write-word"
    for name in ("environment", "tests", "solution"):
        (folder / name).mkdir(parents=True)
    (folder / "task.toml").write_text(TASK_TOML)
    (folder / "instruction.md").write_text("Write the word harbor into /app/answer.txt.\n")
    (folder / "environment" / "Dockerfile").write_text("FROM ubuntu:24.04\nWORKDIR /app\nENV GREETING=hello\n")
    (folder / "tests" / "test.sh").write_text(TEST_SH)
    (folder / "solution" / "solve.sh").write_text("#!/bin/bash\necho harbor > /app/answer.txt\n")
    return folder


async def run_trial(task: Path, base_dir: Path, trials_dir: Path, agent: str) -> Any:
    trial = await Trial.create(
        TrialConfig(
            task=TaskConfig(path=task),
            trials_dir=trials_dir,
            agent=AgentConfig(name=agent),
            environment=TrialEnvironment(
                import_path="sandbox.environment:LocalEnvironment", kwargs={"base_dir": str(base_dir)}
            ),
        )
    )

    async def restart(_: object) -> None:
        environment = trial.agent_environment
        assert isinstance(environment, LocalEnvironment)
        await environment.restart()

    trial.add_hook(TrialEvent.VERIFICATION_START, restart)
    return await trial.run()


@pytest.mark.parametrize(("agent", "reward"), [("oracle", 1.0), ("nop", 0.0)])
async def test_a_trial_is_graded(task: Path, base_dir: Path, tmp_path: Path, agent: str, reward: float) -> None:
    result = await run_trial(task, base_dir, tmp_path / "trials", agent)
    assert result.exception_info is None, result.exception_info
    assert result.verifier_result.rewards == {"reward": reward}
    assert list(base_dir.glob("trial-*")) == []


async def test_a_cheating_agent_gets_what_its_work_is_worth(task: Path, base_dir: Path, tmp_path: Path) -> None:
    (task / "solution" / "solve.sh").write_text(
        "#!/bin/bash\nwriter() { while :; do echo 1 > /logs/verifier/reward.txt; done; }\n"
        "echo 1 > /logs/verifier/reward.txt; mkdir /evil; cp /usr/bin/true /evil/bash; cp /usr/bin/true /evil/cat\n"
        "rm /bin; ln -s /evil /bin; echo 'echo 1 > /logs/verifier/reward.txt; exit' > /root/.bashrc\n"
        "writer </dev/null >/dev/null 2>&1 &\nln -s /app /tests/app\n"
    )
    result = await run_trial(task, base_dir, tmp_path / "trials", "oracle")
    assert result.verifier_result.rewards == {"reward": 0.0}


async def test_a_broken_dockerfile_fails_before_anything_starts(task: Path, base_dir: Path, tmp_path: Path) -> None:
    (task / "environment" / "Dockerfile").write_text("FROM x\nVOLUME /data\n")
    result = await run_trial(task, base_dir, tmp_path / "trials", "nop")
    assert result.exception_info.exception_type == "SandboxBuildFailedError"
    assert "line 2: VOLUME" in result.exception_info.exception_message


def make_environment(task: Path, base_dir: Path, tmp_path: Path, **options: Any) -> LocalEnvironment:
    paths = TrialPaths(tmp_path / "trial")
    paths.mkdir()
    return LocalEnvironment(
        environment_dir=task / "environment",
        environment_name="write-word",
        session_id="s",
        trial_paths=paths,
        task_env_config=EnvironmentConfig(),
        base_dir=base_dir,
        **options,
    )


async def test_commands_run_in_the_image_s_folder_and_environment(task: Path, base_dir: Path, tmp_path: Path) -> None:
    environment = make_environment(task, base_dir, tmp_path)
    try:
        await environment.start(force_build=False)
        done = await environment.exec("pwd; echo $GREETING $HOME", env={"X": "y"})
        assert (done.return_code, done.stdout) == (0, "/app\nhello /root\n")
        with pytest.raises(CommandTimedOut, match="timed out after 1 seconds") as caught:
            await environment.exec("echo early; sleep 60", timeout_sec=1)
        assert caught.value.stdout == "early\n"
        with pytest.raises(ValueError, match="only root"):
            await environment.exec("true", user="agent")
        assert await environment.is_dir("/app")
        assert not await environment.is_file("/app")
        await environment.empty_dirs(["/logs/verifier"])
        (await environment.exec("echo 1 > /logs/verifier/reward.txt; echo : > /app/x.sh"))
        assert (await environment.exec("rm -f -- /logs/verifier/reward.txt /logs/verifier/none")).return_code == 0
        assert (await environment.exec("chmod +x /app/x.sh && ls /logs/verifier")).stdout == ""
        assert (await environment.exec("chmod +x /app/none.sh")).return_code == 1
    finally:
        await environment.stop(delete=True)
        await environment.stop(delete=True)


async def test_cancelled_start_and_exec_leave_nothing(task: Path, base_dir: Path, tmp_path: Path) -> None:
    (task / "environment" / "Dockerfile").write_text("FROM x\nRUN sleep 60\n")
    environment = make_environment(task, base_dir, tmp_path)
    start = asyncio.create_task(environment.start(force_build=False))
    await asyncio.sleep(0.3)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert list(base_dir.glob("trial-*")) == []


def test_wrong_options_are_refused(task: Path, base_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown sandbox limits"):
        make_environment(task, base_dir, tmp_path, limits={"disks": 1})
    with pytest.raises(ValueError, match="disk_mb=0"):
        make_environment(task, base_dir, tmp_path, limits={"disk_mb": 0})
    with pytest.raises(ValueError, match="read_only"):
        make_environment(task, base_dir, tmp_path, read_only=["/none"])
    (task / "environment" / "docker-compose.yaml").touch()
    with pytest.raises(SandboxBuildFailedError, match=r"docker-compose\.yaml"):
        make_environment(task, base_dir, tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user runs every other test as one")
def test_an_ordinary_user_can_run_it(base_dir: Path) -> None:
    from sandbox.trial import Sandbox

    base_dir.chmod(0o777)

    async def one() -> bool:
        sandbox = Sandbox(base_dir=base_dir / "user")
        await sandbox.start()
        try:
            await sandbox.run("echo 1 > /logs/verifier/reward.txt; echo kept > /tmp/kept", env={"PATH": "/usr/bin"})
            await sandbox.restart()
            ended = await sandbox.run("id -u; cat /tmp/kept; ls /logs/verifier", env={"PATH": "/usr/bin"})
        finally:
            await sandbox.close()
        return (ended.stdout, list((base_dir / "user").iterdir())) == ("0\nkept\n", [])

    child = os.fork()
    if child == 0:
        # In the test's own process everything is imported already: the user need not be able to read our folders.
        code = 1
        try:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            code = 0 if asyncio.run(one()) else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0

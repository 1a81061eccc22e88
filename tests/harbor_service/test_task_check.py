"""`agent_server.py check`: real process, Harbor trials and sandboxes over folders of sound and broken tasks."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harbor_service.harbor_server_process import ROOT, write_task
from tests.harbor_service.test_trial_ends_from_outside import sandboxed, wait_for

ALWAYS = "#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n"
SILENT = "#!/bin/bash\nexit 1\n"
ONLY_WHEN_SOLVED = "#!/bin/bash\nif [ -d /app/target ]; then echo 1 > /logs/verifier/reward.txt; fi\n"
PARTIAL = "#!/bin/bash\nif [ -d /app/target ]; then echo 1; else echo 0.25; fi > /logs/verifier/reward.txt\n"
TWO_NUMBERS = '#!/bin/bash\necho \'{"a": 1, "b": 1}\' > /logs/verifier/reward.json\n'
LIMITS = '[task]\nname = "test/short"\n[verifier]\ntimeout_sec = 2.0\n[environment]\nbuild_timeout_sec = 2.0\n'


def command(tasks: Path, *flags: str) -> list[str]:
    program = [sys.executable, str(ROOT / "agent_server.py"), "check", "--environment", "local"]
    return [*program, "--tasks-dir", str(tasks), *flags]


def check(tasks: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(tasks, *flags), cwd=ROOT, capture_output=True, text=True, check=False, timeout=200)


def test_sound_tasks_end_with_code_0_and_leave_nothing_behind(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks"
    for number in range(3):
        write_task(tasks, f"sound-{number}")
    (tasks / "notes").mkdir()
    environ = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    ended = subprocess.run(command(tasks), cwd=ROOT, capture_output=True, text=True, check=False, env=environ)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("3 of 3 tasks checked in ") and ended.stdout.endswith(" s, 0 broken\n")
    assert [path.name for path in (tmp_path / "tmp").iterdir() if path.name.startswith("task-check-")] == []


def test_each_kind_of_broken_task_is_listed_with_its_reason(tmp_path: Path) -> None:
    write_task(tmp_path, "sound")
    write_task(tmp_path, "bad-toml", task_toml="this is = not [toml")
    write_task(tmp_path, "bad-dockerfile", dockerfile="FROM ubuntu:24.04\nFETCH everything\n")
    write_task(tmp_path, "no-solution", solve_sh=None)
    write_task(tmp_path, "no-solution-and-given-away", solve_sh=None, test_sh=ALWAYS)
    write_task(tmp_path, "endless-build", dockerfile="FROM x\nRUN sleep 1000\n", task_toml=LIMITS)
    write_task(tmp_path, "endless-tests", test_sh="#!/bin/bash\nsleep 1000\n", task_toml=LIMITS)
    write_task(tmp_path, "two-numbers", test_sh=TWO_NUMBERS)
    write_task(tmp_path, "silent", test_sh=SILENT)
    write_task(tmp_path, "silent-when-unsolved", test_sh=ONLY_WHEN_SOLVED)
    write_task(tmp_path, "wrong-solution", solve_sh="#!/bin/bash\necho tried hard\nexit 3\n")
    write_task(tmp_path, "given-away", test_sh=ALWAYS)
    write_task(tmp_path, "partly-given-away", test_sh=PARTIAL)
    ended = check(tmp_path, "--format", "json")
    assert ended.returncode == 1, ended.stderr
    report = json.loads(ended.stdout)
    found = {name: [fault["fault"] for fault in faults] for name, faults in report["broken"].items()}
    assert found == {
        "bad-toml": ["broken folder"],
        "bad-dockerfile": ["build fails"],
        "endless-build": ["build fails"],
        "endless-tests": ["verifier broken"],
        "two-numbers": ["verifier broken"],
        "no-solution": ["no solution"],
        "no-solution-and-given-away": ["no solution", "nop passes"],
        "silent": ["verifier broken"],
        "silent-when-unsolved": ["verifier broken"],
        "wrong-solution": ["oracle fails"],
        "given-away": ["nop passes"],
        "partly-given-away": ["nop passes"],
    }
    assert (report["tasks"], report["checked"], report["faults"]["nop passes"]) == (13, 13, 3)
    reasons = {name: faults[0]["reason"] for name, faults in report["broken"].items()}
    assert reasons["wrong-solution"] == ("the solution earned 0 instead of 1; solve.sh ended with code 3: tried hard")
    assert reasons["partly-given-away"] == "doing nothing earned 0.25 instead of 0"
    assert reasons["silent-when-unsolved"].startswith("with nothing done: ")
    assert reasons["silent"].startswith("with the solution: No reward file found at verifier/reward.txt")
    assert "FETCH" in reasons["bad-dockerfile"]
    assert reasons["two-numbers"].endswith("must be one number or one named reward, the tests gave a, b")


def test_what_a_task_prints_does_not_reach_the_terminal_as_control_sequences(tmp_path: Path) -> None:
    write_task(tmp_path, "loud", solve_sh="#!/bin/bash\nprintf '\\e[2J\\e]0;title\\a'; exit 1\n")
    output = check(tmp_path).stdout
    assert r"\x1b[2J\x1b]0;title\x07" in output and output.replace("\n", "").isprintable()


def test_solution_without_end_is_ended_and_named(tmp_path: Path) -> None:
    write_task(tmp_path, "endless", solve_sh="#!/bin/bash\nsleep 1000\n")
    ended = check(tmp_path, "--agent-timeout", "1")
    assert ended.returncode == 1
    assert ended.stdout.startswith("endless: oracle fails: the solution did not end within 1 seconds\n1 of 1 tasks")


def test_trials_are_kept_where_asked(tmp_path: Path) -> None:
    write_task(tmp_path / "tasks", "sound")
    assert check(tmp_path / "tasks", "--trials-dir", str(tmp_path / "kept")).returncode == 0
    assert len(list((tmp_path / "kept").glob("sound__*"))) == 2


@pytest.mark.parametrize("by", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_signal_ends_all_sandboxes_and_tells_what_was_found(tmp_path: Path, by: signal.Signals) -> None:
    write_task(tmp_path, "a-given-away", test_sh=ALWAYS)
    for number in range(6):
        write_task(tmp_path, f"slow-{number}", solve_sh="#!/bin/bash\nexec sleep 2236\n")
    with subprocess.Popen(
        command(tmp_path, "--max-concurrent", "3"), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert wait_for(lambda: len(sandboxed("sleep 2236")) >= 3, 60)
        process.send_signal(by)
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (128 + by, "")
    assert "a-given-away: nop passes" in output and f"stopped by {by.name}: 1 of 7 tasks checked" in output
    assert not sandboxed("sleep 2236")


def test_terminal_shows_progress_and_a_pipe_only_the_result(tmp_path: Path) -> None:
    write_task(tmp_path, "given-away", test_sh=ALWAYS)
    screen, terminal = pty.openpty()
    try:
        ended = subprocess.run(
            command(tmp_path), cwd=ROOT, stdout=subprocess.PIPE, stderr=terminal, text=True, check=False,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "80"},
        )  # fmt: skip
        shown = os.read(screen, 100_000).decode()
    finally:
        os.close(terminal)
        os.close(screen)
    assert ended.returncode == 1
    assert "0/1" in shown and "given-away: nop passes" in ended.stdout and "\x1b" not in ended.stdout
    assert check(tmp_path).stderr == ""


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (("--max-concurrent", "0"), 2, "--max-concurrent must be at least 1"),
        (("--tasks-dir", "nowhere"), 2, "no folder of tasks at nowhere"),
        (("--environment", "moon"), 3, "unknown environment 'moon'"),
        (("--wat",), 2, "--wat"),
        ((), 2, "holds no tasks"),
    ],
)
def test_option_that_cannot_work_is_named(tmp_path: Path, flags: tuple[str, ...], code: int, words: str) -> None:
    ended = check(tmp_path, *flags)
    assert ended.returncode == code
    assert words in ended.stderr and "Traceback" not in ended.stderr

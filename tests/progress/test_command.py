"""verify_progress.py as a process: what it prints where, and what the shell sees."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from progress.command import compare_main, verify_main
from progress.read_run import read_run
from progress.run_report import Kind
from tests.progress.run_on_disk import MINUTE, RunOnDisk, sample

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 120.0

FIELDS = {"verdict", "reason", "last_rollout", "last_trained", "steps", "exit_statuses", "findings"}
STEP_FIELDS = {
    *("rollout_id", "reward_mean", "reward_std", "solved", "groups", "groups_with_signal", "discarded", "truncated"),
    *("never_ran", "tokens", "turns", "ranks_written", "ranks_expected", "seconds"),
}


def command(*arguments: object) -> list[str]:
    return [sys.executable, str(ROOT / "verify_progress.py"), *map(str, arguments)]


def verify(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    for path in (one for one in arguments if isinstance(one, Path) and one.is_dir()):
        read_run(path)  # the process finds a cache, and need not start PyTorch
    environment = {**os.environ, **variables}
    return subprocess.run(
        command(*arguments), env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
    )


def test_the_object_has_the_fields_of_the_contract(disk: RunOnDisk) -> None:
    disk.launch(num_rollout=9)
    disk.steps(3, age=MINUTE)
    disk.rollout(3, samples=[sample(0, 1.0), sample(1, 1.0, status="aborted")])
    disk.raw("rollout_data/4.pt", b"x")
    done = verify(disk.save, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found.keys() == FIELDS
    assert (found["verdict"], found["last_rollout"], found["last_trained"]) == ("ADVANCING", 3, 2)
    assert all(step.keys() == STEP_FIELDS for step in found["steps"])
    first = found["steps"][0]
    assert (first["reward_mean"], first["solved"], first["groups"], first["groups_with_signal"]) == (0.75, 0.75, 2, 1)
    assert (first["ranks_written"], first["ranks_expected"], first["seconds"]) == (1, 1, 10.0)
    assert found["exit_statuses"] == {"Submitted": 14}
    assert all(finding.keys() == {"kind", "rollout_id", "text"} for finding in found["findings"])
    kinds = {(finding["kind"], finding["rollout_id"]) for finding in found["findings"]}
    assert kinds == {("reward_on_aborted", 3), ("no_signal", 3), ("unreadable", 4)}
    assert {kind for kind, _ in kinds} <= {kind.value for kind in Kind}


@pytest.mark.parametrize(
    ("case", "verdict", "code"),
    [
        ("advancing", "ADVANCING", 0),
        ("finished", "FINISHED", 0),
        ("stalled", "STALLED", 1),
        ("failing", "FAILING", 1),
        ("no signal", "NO SIGNAL", 1),
        ("no data", "NO DATA", 2),
        ("nowhere", "NO DATA", 2),
    ],
)
def test_the_verdict_comes_first_and_is_the_exit_code(
    disk: RunOnDisk, case: str, verdict: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = disk.save
    if case == "advancing":
        disk.steps(2)
    elif case == "finished":
        disk.launch(num_rollout=2)
        disk.steps(2)
    elif case == "stalled":
        disk.steps(3, age=300 * MINUTE)
    elif case == "failing":
        disk.outcomes(disk.ended(0, {"InfraError": 2}, discard=True))
    elif case == "no signal":
        disk.rollout(0, ((1.0, 1.0),))
    elif case == "nowhere":
        folder = disk.save / "nowhere"
    assert verify_main([str(folder)]) == code
    said = capsys.readouterr()
    assert said.out.splitlines()[0].startswith(f"{verdict}: ") and said.err == ""
    assert verify_main([str(folder), "--json"]) == code
    assert json.loads(capsys.readouterr().out)["verdict"] == verdict


def test_a_pipe_gets_plain_lines_with_every_column(disk: RunOnDisk) -> None:
    disk.launch(num_rollout=90)
    disk.steps(60, every=MINUTE)
    disk.evaluation(0)
    disk.outcomes(disk.ended(59, {"\x1b[2J\u202e evil": 1}, discard=True))
    out = verify(disk.traces, PYTHONIOENCODING="ascii").stdout
    lines = out.splitlines()
    assert "\x1b" not in out and "\u202e" not in out and "\\x1b[2J" in out
    assert lines[2].split("  ")[0] == "rollout" and "never ran" in lines[2] and "truncated" in lines[2]
    assert len([line for line in lines if re.match(r" +\d+   0\.750", line)]) == 60
    assert "evaluation before rollout 0: reward 0.750, solved 75%, 4 trajectories" in lines
    assert "how 241 trajectories ended:" in lines


def test_what_cannot_work_is_said_in_a_sentence(
    disk: RunOnDisk, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    disk.steps(1)
    for arguments, said in (
        (("--stall-factor", "0"), "--stall-factor must be a number above 0, got 0.0"),
        (("--stall-floor", "nan"), "--stall-floor must be a number above 0"),
        (("--num-rollout", "0"), "--num-rollout must be at least 1"),
        (("--interval", "-1", "--follow"), "--interval must be a number above 0"),
        (("--samples", "1"), "name its file with --html"),
        (("--plot", tmp_path / "file" / "run.png"), "cannot be written"),
        (("--html", tmp_path / "file" / "run.html"), "cannot be written"),
    ):
        (tmp_path / "file").write_text("x")
        assert verify_main([str(disk.traces), *map(str, arguments)]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert said in printed.err and len(printed.err.splitlines()) == 1


@pytest.mark.parametrize("arguments", [["--nothing"], []])
def test_unknown_flags_and_no_folder_are_usage_errors(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        verify_main(arguments)
    assert ended.value.code == 2


def test_picture_and_page_are_written_beside_the_report(disk: RunOnDisk, tmp_path: Path) -> None:
    disk.steps(2)
    files = ["--plot", str(tmp_path / "run.png"), "--html", str(tmp_path / "run.html"), "--samples", "1"]
    assert verify_main([str(disk.traces), *files]) == 0
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
    assert "ADVANCING" in (tmp_path / "run.html").read_text()


def test_two_runs_are_compared(tmp_path: Path) -> None:
    for name in ("one", "other"):
        RunOnDisk(tmp_path / name).steps(2)
    done = verify("compare", tmp_path / "one", tmp_path / "other", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)
    assert compare_main([str(tmp_path / "one")]) == 2


@pytest.mark.parametrize(("age", "code"), [(0.0, 0), (300 * MINUTE, 1)])
def test_a_reader_that_has_seen_enough_is_no_error(disk: RunOnDisk, age: float, code: int) -> None:
    disk.steps(3, age=age)
    read_run(disk.traces)
    process = subprocess.Popen(command(disk.traces), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(LIMIT) == code


class Terminal:
    """A process on a terminal of its own; what it wrote so far is `text`."""

    def __init__(self, arguments: Sequence[str], columns: int) -> None:
        self.text = ""
        self._master, slave = pty.openpty()
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "40"}
        self.process = subprocess.Popen(arguments, stdin=slave, stdout=slave, stderr=slave, env=environment)
        os.close(slave)

    def read_until(self, wanted: str) -> None:
        until = time.monotonic() + LIMIT
        while wanted not in self.text and time.monotonic() < until:
            if not self._read():
                break
        assert wanted in self.text, self.text

    def end(self) -> int:
        while self._read():
            pass
        os.close(self._master)
        return self.process.wait(LIMIT)

    def _read(self) -> bool:
        ready, _, _ = select.select([self._master], [], [], LIMIT)
        try:
            data = os.read(self._master, 65536) if ready else b""
        except OSError:  # the other end is closed
            data = b""
        self.text += data.decode(errors="replace")
        return bool(data)


@pytest.mark.parametrize("columns", [80, 200])
def test_a_terminal_gets_the_columns_that_fit(disk: RunOnDisk, columns: int) -> None:
    disk.steps(60, every=MINUTE)
    read_run(disk.traces)
    terminal = Terminal(command(disk.traces), columns)
    assert terminal.end() == 0
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.text).replace("\r", "").splitlines()
    header = next(line for line in lines if line.strip().startswith("rollout  reward"))
    assert ("never ran" in header) == (columns == 200) and "age" in header
    assert len(header) <= columns
    assert len([line for line in lines if re.match(r" +\d+   0\.750", line)]) == 40
    assert "20 earlier rollouts are not shown" in terminal.text


def test_a_run_that_is_followed_is_drawn_in_place_until_it_has_finished(disk: RunOnDisk) -> None:
    disk.launch(num_rollout=2)
    disk.rollout(0)
    terminal = Terminal(command(disk.traces, "--follow", "--interval", "0.2"), 120)
    terminal.read_until("ADVANCING")
    disk.train(0)
    disk.rollout(1)
    disk.train(1)
    assert terminal.end() == 0
    before, _, after = terminal.text.partition("FINISHED")
    assert "\x1b[1A" in before  # back up, over the lines of the look before
    assert "was the last of 2" in after


def test_a_run_that_is_followed_in_a_pipe_gives_a_line_for_what_is_new(disk: RunOnDisk, tmp_path: Path) -> None:
    """Begun before the run has a folder."""
    folder = disk.save.rename(tmp_path / "later")
    process = subprocess.Popen(
        command(disk.save, "--follow", "--interval", "0.2", "--plot", tmp_path / "run.png"),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    timer = threading.Timer(LIMIT, process.kill)
    timer.start()
    assert process.stdout.readline().startswith("NO DATA: ")
    later = RunOnDisk(folder)
    later.launch(num_rollout=2)
    later.rollout(0)
    folder.rename(disk.save)
    assert process.stdout.readline().startswith("ADVANCING: rollout 0 of 2")
    assert process.stdout.readline().startswith("rollout 0  reward 0.750")
    later.traces = disk.traces
    later.rollout(1)
    later.train(0)
    later.train(1)
    rest = process.stdout.read()
    timer.cancel()
    assert process.wait(LIMIT) == 0
    assert "FINISHED: rollout 1 was the last of 2" in rest and "rollout 1  reward 0.750" in rest
    assert (tmp_path / "run.png").exists()


def test_a_followed_run_as_json_is_one_object_a_line(disk: RunOnDisk, capsys: pytest.CaptureFixture[str]) -> None:
    disk.launch(num_rollout=1)
    disk.steps(1)
    assert verify_main([str(disk.traces), "--follow", "--json", "--interval", "0.1"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["verdict"] == "FINISHED"


def test_ctrl_c_ends_following_with_130(disk: RunOnDisk) -> None:
    disk.steps(2)
    read_run(disk.traces)
    terminal = Terminal(command(disk.traces, "--follow", "--interval", "0.2"), 120)
    terminal.read_until("ADVANCING")
    terminal.process.send_signal(2)
    assert terminal.end() == 130
    assert "Traceback" not in terminal.text

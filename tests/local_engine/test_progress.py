"""A person on a terminal sees rows of at most 100 characters; a pipe gets one plain line for each event."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from local_engine.progress import RunProgress, StepRow
from local_engine.step_table import StepTable, bar, duration, sparkline

ROOT = Path(__file__).parent.parent.parent
MEASURED_BY_SOME = ("kl", "stale", "overlap")
ROW = StepRow(
    rollout_id=3,
    reward_mean=0.625,
    reward_moving=0.5,
    heldout=None,
    discarded=2,
    groups=6,
    groups_with_signal=5,
    truncated=1,
    tokens=1540,
    tokens_per_second=210.4,
    rollout_seconds=6.31,
    train_seconds=2.5,
    other_seconds=0.42,
    eta_seconds=190.0,
    kl=0.0123,
    clip_fraction=0.01,
    grad_norm=0.83,
)


def piped(act: Callable[[RunProgress], None]) -> list[str]:
    file = io.StringIO()
    progress = RunProgress(25, Console(file=file, width=40))
    with progress:
        act(progress)
    return file.getvalue().splitlines()


def test_in_a_pipe_a_finished_rollout_is_one_line_with_every_number_named() -> None:
    assert piped(lambda progress: progress.step_finished(ROW)) == [
        "rollout 3/24  reward 0.625  mean3 0.500  signal 5/6  discarded 2  truncated 1  tokens 1540  tok/s 210  "
        "rollout 6.3s  train 2.5s  other 0.4s  kl 0.0123  clipped 0.010  grad 0.83  left 3m10s"
    ]


def test_in_a_pipe_every_event_is_a_line_and_trials_do_not_flood() -> None:
    def act(progress: RunProgress) -> None:
        progress.plan([("model", "tiny"), ("time", "about 6 minutes")])
        progress.phase("starting the agent server")
        progress.evaluation(0, 0.35, {"mkdir": 0.5, "copy": 0.2})
        progress.step_started(0)
        for done in range(48):
            progress.trials(done, 48, 0)
        progress.phase("training")
        progress.evaluation(1, 0.5, {})
        progress.summary([("picture", "runs/x/reward.png")])

    assert piped(act) == [
        "plan: model: tiny",
        "plan: time: about 6 minutes",
        "starting the agent server",
        "held-out 0.350 before training  mkdir 0.50  copy 0.20",
        "held-out 0.500 after 1 rollout",
        "result: picture: runs/x/reward.png",
    ]


def test_a_slow_rollout_in_a_pipe_is_seen_to_live(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("local_engine.progress.time.monotonic", lambda: now)

    def act(progress: RunProgress) -> None:
        nonlocal now
        progress.step_started(2)
        for done in range(1, 5):
            now += 16
            progress.trials(done, 48, 1)

    assert piped(act) == [
        "rollout 2/24  trials 2/48  discarded 1",
        "rollout 2/24  trials 4/48  discarded 1",
    ]


def test_a_warning_is_shown_once_and_counted_at_the_end() -> None:
    def act(progress: RunProgress) -> None:
        for _ in range(3):
            progress.warning("dump [3] was not written")
        progress.summary([])

    assert piped(act) == ["warning: dump [3] was not written", "warning, 3 times: dump [3] was not written"]


def test_an_error_goes_to_standard_error_in_one_line() -> None:
    out, error = io.StringIO(), io.StringIO()
    with RunProgress(25, Console(file=out, width=40), Console(file=error, width=40)) as progress:
        progress.error("no prompt in [data.jsonl]: " + "x" * 80)
    assert out.getvalue() == ""
    assert error.getvalue() == "error: no prompt in [data.jsonl]: " + "x" * 80 + "\n"


@pytest.mark.parametrize("absent", [frozenset({"kl"}), frozenset({"stale", "overlap"}), frozenset(MEASURED_BY_SOME)])
@pytest.mark.parametrize("width", [100, 80, 60, 40])
def test_rows_fit_the_terminal_and_stand_under_their_titles(width: int, absent: frozenset[str]) -> None:
    table = StepTable(1000, width, absent)
    extreme = replace(ROW, rollout_id=999, heldout=1.0, rollout_seconds=7199.0, train_seconds=600.0, eta_seconds=9e4)
    header, row = table.header().plain, table.row(extreme).plain
    assert len(header) == len(row) <= width
    assert {"reward", "rollout"} <= {column.title for column in table.columns}
    if width >= 100 and len(absent) > 1:
        assert len(table.columns) == 17 - len(absent)
    if width >= 80:
        assert {"mean 3", "held-out", "signal", "lost", "trials", "train", "left"} <= {
            column.title for column in table.columns
        }


def test_a_terminal_shows_the_plan_rows_and_result_and_keeps_no_bar() -> None:
    program = (
        "from local_engine.progress import RunProgress\n"
        "from tests.local_engine.test_progress import ROW\n"
        "with RunProgress(25) as progress:\n"
        "    progress.plan([('model', 'tiny')])\n"
        "    progress.step_started(3)\n"
        "    progress.trials(24, 48, 1)\n"
        "    import time; time.sleep(0.6)\n"
        "    progress.step_finished(ROW)\n"
        "    print('a library prints')\n"
        "    progress.summary([('picture', 'reward.png')])\n"
    )
    main, other = pty.openpty()
    environment = {**os.environ, "COLUMNS": "100", "LINES": "30", "TERM": "xterm-256color"}
    child = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=other, stderr=other, env=environment, close_fds=True
    )
    os.close(other)
    shown = b""
    while True:
        try:
            part = os.read(main, 65536)
        except OSError:  # Linux answers the reader of a terminal whose last writer is gone with EIO.
            break
        if not part:
            break
        shown += part
    os.close(main)
    assert child.wait(60) == 0
    text = shown.decode()
    for expected in ("Plan", "24/48 trials", "1 discarded", "0.625", "a library prints", "reward.png"):
        assert expected in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l"), "the cursor is shown again"
    assert "trials" not in text[text.index("a library prints") :].split("Result")[1]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0.0s"), (9.94, "9.9s"), (9.96, "10s"), (59.6, "1m00s"), (190, "3m10s"), (7500, "2h05m")]
)
def test_durations_read_at_a_glance(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_bar_and_sparkline_stay_within_their_width() -> None:
    assert bar(0.0, 8) == " " * 8
    assert bar(1.7, 8) == "█" * 8
    assert bar(0.5, 8) == "████    "
    assert sparkline([0.0, 0.5, 1.0], 30) == "▁▅█"
    assert len(sparkline([0.1] * 1000, 30)) == 30


def test_metrics_leave_out_what_was_not_measured() -> None:
    names = replace(ROW, kl=None).metrics()
    assert "train/kl" not in names
    assert "eval/heldout_success" not in names
    assert names["rollout/reward_mean"] == 0.625

"""Every trajectory leaves a line; no disk ends a run."""

import logging
import math
import multiprocessing
import os
from pathlib import Path

import pytest

from tests.outcomes_on_disk import read_outcomes
from trajectory.outcome import Outcome, discarded
from trajectory.outcomes_file import OutcomesFile, OutcomesTail, outcome_line


def test_lines_of_several_processes_are_read_in_order_of_time(tmp_path: Path) -> None:
    OutcomesFile(tmp_path).append({"time": 2.0, "index": 1})
    with multiprocessing.get_context("fork").Pool(1) as pool:
        pool.apply(OutcomesFile(tmp_path).append, ({"time": 1.0, "index": 0},))
    assert [line["index"] for line in read_outcomes(tmp_path)] == [0, 1]
    assert len(list((tmp_path / "outcomes").iterdir())) == 2


def test_a_last_line_that_is_not_whole_is_waited_for(tmp_path: Path) -> None:
    file, tail = OutcomesFile(tmp_path), OutcomesTail(tmp_path)
    file.append({"time": 1.0, "index": 0})
    with file.path.open("ab") as stream:
        stream.write(b'{"time": 2.0, "ind')
    assert [line["index"] for line in tail.read()] == [0]
    with file.path.open("ab") as stream:
        stream.write(b'ex": 1}\n')
    assert [line["index"] for line in tail.read()] == [1]


def test_what_a_killed_process_tore_loses_only_itself(tmp_path: Path) -> None:
    file, tail = OutcomesFile(tmp_path), OutcomesTail(tmp_path)
    file.path.parent.mkdir()
    file.path.write_bytes(b'{"time": 2.0, "ind\n')
    file.append({"time": 1.0, "index": 0})
    assert [line["index"] for line in tail.read()] == [0]


def test_metrics_that_json_cannot_hold_do_not_lose_the_line(tmp_path: Path) -> None:
    outcome = Outcome(1.0, "Submitted", agent_metrics={"rate": math.nan, "steps": (1, 2), "path": Path("x")})
    OutcomesFile(tmp_path).append(outcome_line(outcome, seconds=1.23456, index=3, instance_id="a-1"))
    (line,) = read_outcomes(tmp_path)
    assert line["agent_metrics"] == {"rate": None, "steps": [1, 2], "path": "x"}
    assert (line["seconds"], line["index"], line["instance_id"], line["discard"]) == (1.235, 3, "a-1", False)
    assert "rollout_id" not in line
    assert "evaluation" not in line


def test_half_a_surrogate_pair_comes_back_as_it_was(tmp_path: Path) -> None:
    outcome = Outcome.from_reply({"reward": 1, "exit_status": "odd \ud800", "agent_metrics": {"last": "é\udc00"}})
    assert OutcomesFile(tmp_path).append(outcome_line(outcome, seconds=0.0))
    (line,) = read_outcomes(tmp_path)
    assert (line["exit_status"], line["agent_metrics"]) == ("odd \ud800", {"last": "é\udc00"})


def test_a_discard_says_why(tmp_path: Path) -> None:
    line = outcome_line(discarded("InfraError", reason="KeyError: x"), seconds=0.0, rollout_id=4, evaluation=True)
    assert (line["rollout_id"], line["evaluation"], line["reason"], line["reward"]) == (4, True, "KeyError: x", None)


def test_a_full_disk_is_one_warning_and_a_false(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = OutcomesFile(tmp_path)
    file.path.parent.mkdir()
    os.symlink("/dev/full", file.path)
    with caplog.at_level(logging.WARNING):
        assert not file.append({"index": 0})
        assert not file.append({"index": 1})
    assert len(caplog.records) == 1
    assert str(file.path) in caplog.text

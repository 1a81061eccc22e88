"""Dumps that a real Miles wrote: rollout and train data of one step, tensors on a GPU there, none of our metadata."""

from __future__ import annotations

import shutil
from pathlib import Path

from progress.read_run import read_run, read_samples
from progress.run_report import Verdict
from tests.progress.run_on_disk import RunOnDisk

DATA = Path(__file__).resolve().parents[1] / "data"


def place(disk: RunOnDisk, name: str, target: str) -> None:
    path = disk.traces / target
    path.parent.mkdir(exist_ok=True)
    shutil.copy(DATA / name, path)


def test_a_step_of_miles_is_read(disk: RunOnDisk) -> None:
    place(disk, "miles_rollout.pt", "rollout_data/0.pt")
    place(disk, "miles_train.pt", "train_data/0_0.pt")
    report = read_run(disk.traces)
    assert report.verdict is Verdict.ADVANCING
    assert report.findings == ()
    assert (report.last_rollout, report.last_trained) == (0, 0)
    (step,) = report.steps
    assert (step.trajectories, step.groups, step.groups_with_signal) == (16, 4, 4)
    assert (round(step.reward_mean or 0, 4), step.solved, step.truncated) == (0.0825, 0.0, 8)
    assert (step.tokens, step.turns, step.discarded) == (61.0, 27 / 16, 0)
    assert step.exit_statuses == {"truncated": 8, "completed": 8}
    assert len(read_samples(disk.traces, 0)) == 16


def test_without_the_rollout_the_train_dump_gives_the_step(disk: RunOnDisk) -> None:
    place(disk, "miles_train.pt", "train_data/0_0.pt")
    (step,) = read_run(disk.traces).steps
    assert (step.trajectories, step.tokens, step.truncated) == (16, 61.0, 8)
    assert round(step.reward_mean or 0, 4) == 0.0825 and round(step.reward_std or 0, 4) == 0.0177


def test_a_run_of_ours_with_the_real_miles_has_finished(disk: RunOnDisk) -> None:
    shutil.copytree(DATA / "gpu_run", disk.traces, dirs_exist_ok=True)
    report = read_run(disk.traces)
    assert report.verdict is Verdict.FINISHED
    assert report.findings == ()
    assert [step.reward_mean for step in report.steps] == [0.875, 0.90625]
    assert [step.groups_with_signal for step in report.steps] == [3, 2]
    assert [step.discarded for step in report.steps] == [16, 16]
    assert (report.last_rollout, report.last_trained) == (1, 1)

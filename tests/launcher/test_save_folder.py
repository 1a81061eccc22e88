from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.errors import OptionsError
from launcher.save_folder import TRACKER, held, is_used

LOCAL = ("--engine", "local", "--dry-run", "--format", "json")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "s").mkdir()
    return tmp_path / "s"


def contents(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*"))


@pytest.mark.parametrize("entry", [TRACKER, "iter_0000004/"])
def test_a_used_folder_without_resume_is_refused_and_left_alone(
    launch: Callable[..., Any], folder: Path, entry: str
) -> None:
    if entry.endswith("/"):
        (folder / entry).mkdir()
    else:
        (folder / entry).write_text("4")
    before = contents(folder)
    answer = launch("--engine", "local", "--save-dir", str(folder))
    assert answer.code == 2
    assert "--resume" in answer.err
    assert contents(folder) == before


def test_what_a_failed_start_left_does_not_make_a_folder_used(folder: Path) -> None:
    for name in ("launch", "traces", "tasks", "iter_0000004.tmp-17"):
        (folder / name).mkdir()
    assert not is_used(folder)


def test_resume_says_what_is_done_and_what_is_to_go(launch: Callable[..., Any], folder: Path) -> None:
    (folder / TRACKER).write_text("38\n")
    answer = launch(*LOCAL, "--save-dir", str(folder), "--num-rollout", "40", "--resume")
    assert answer.code == 0
    assert "39 done, 1 to go" in answer.out


@pytest.mark.parametrize("tracker", ["39", "60"])
def test_a_run_that_is_done_has_nothing_left_to_do(launch: Callable[..., Any], folder: Path, tracker: str) -> None:
    (folder / TRACKER).write_text(tracker)
    (folder / "model").mkdir()
    before = contents(folder)
    answer = launch("--engine", "local", "--save-dir", str(folder), "--num-rollout", "40", "--resume")
    assert answer.code == 4
    assert "nothing left to do" in answer.err
    assert contents(folder) == before


def test_a_run_that_is_done_but_for_its_model_goes_on(launch: Callable[..., Any], folder: Path) -> None:
    (folder / TRACKER).write_text("39")
    arguments = (*LOCAL, "--save-dir", str(folder), "--num-rollout", "40", "--resume")
    answer = launch(*arguments)
    assert answer.code == 0
    assert "40 done, 0 to go" in answer.out
    assert launch(*arguments, "--mode", "debug_rollout_only").code == 4


@pytest.mark.parametrize("tracker", [None, "release", "", "-1", "4.0"])
def test_a_tracker_that_names_no_rollout_is_refused(
    launch: Callable[..., Any], folder: Path, tracker: str | None
) -> None:
    if tracker is not None:
        (folder / TRACKER).write_text(tracker)
    assert launch(*LOCAL, "--save-dir", str(folder), "--resume").code == 2
    assert launch(*LOCAL, "--load-dir", str(folder)).code == 2


def test_loading_from_another_folder_needs_a_new_save_folder(
    launch: Callable[..., Any], folder: Path, tmp_path: Path
) -> None:
    (folder / TRACKER).write_text("4")
    assert launch(*LOCAL, "--load-dir", str(folder), "--save-dir", str(tmp_path / "new")).code == 0
    other = tmp_path / "other"
    other.mkdir()
    (other / TRACKER).write_text("9")
    answer = launch(*LOCAL, "--load-dir", str(folder), "--save-dir", str(other), "--resume")
    assert answer.code == 2
    assert "mix" in answer.err


def test_a_save_folder_that_is_a_file_is_refused(launch: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    assert launch(*LOCAL, "--save-dir", str(tmp_path / "f")).code == 2


def test_one_run_at_a_time_has_a_save_folder(tmp_path: Path) -> None:
    save = tmp_path / "new" / "run"
    for _ in range(2):
        with held(save):
            with pytest.raises(OptionsError, match="in use by another run"), held(save):
                pass
            with held(tmp_path / "other"):
                pass
    assert not is_used(save)

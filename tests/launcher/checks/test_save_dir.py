from __future__ import annotations

from pathlib import Path

import pytest

from launcher.checks.save_dir import check_save_dir
from launcher.preflight import Status
from launcher.save_folder import TRACKER


def test_a_folder_with_checkpoints_is_for_resuming_only(tmp_path: Path) -> None:
    assert check_save_dir(tmp_path / "new", False, None).status is Status.OK
    (tmp_path / TRACKER).write_text("39\n")
    finding = check_save_dir(tmp_path, False, None)
    assert finding.status is Status.FAILURE
    assert "already holds checkpoints" in finding.sentence and "--resume" in finding.way_out
    assert check_save_dir(tmp_path, True, "39").status is Status.OK


@pytest.mark.parametrize(
    ("there", "here", "words"),
    [("39", "19", "says '39' there, it says '19'"), (None, "19", "is missing there"), ("39", None, "it is missing")],
)
def test_another_tracker_than_the_launching_machines_is_another_storage(
    tmp_path: Path, there: str | None, here: str | None, words: str
) -> None:
    if there is not None:
        (tmp_path / TRACKER).write_text(there)
    finding = check_save_dir(tmp_path, True, here)
    assert finding.status is Status.FAILURE
    assert words in finding.sentence
    assert "storage that all machines see" in finding.way_out


def test_a_folder_that_cannot_be_listed_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(folder))

    # The tests may run as a user whom no permission stops.
    monkeypatch.setattr("launcher.checks.save_dir.is_used", refuse)
    assert "Permission denied" in check_save_dir(tmp_path, False, None).sentence

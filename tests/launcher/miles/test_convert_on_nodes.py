from __future__ import annotations

import json
from pathlib import Path

import pytest

from launcher.miles.convert_on_nodes import main
from tests.end_to_end.launcher_run import write_reference


def test_what_is_complete_where_the_job_runs_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fields = {"num_hidden_layers": 47}
    write_reference(tmp_path / "reference", fields)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "reference").rglob("*")}
    about = ("--folder", str(tmp_path / "reference"), "--hf-checkpoint", "m", "--model", "M")
    # No Ray runs here: a conversion would fail at once.
    assert main([*about, "--fields", json.dumps(fields), "--", "--nodes", "1", "--gpus", "1", "--", "false"]) == 0
    assert "is converted" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "reference").rglob("*")} == before

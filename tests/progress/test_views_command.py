"""verify_progress.py's picture, page and comparison as a person calls them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from progress.command import compare_main, verify_main
from tests.progress.written_run import write_run

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save folders `short` and `long`, and `empty`, which holds no run."""
    folder = tmp_path_factory.mktemp("runs")
    write_run(folder / "short", [0, 1], said="x")
    write_run(folder / "long", [0, 1, 2], said="x", reward=lambda rollout, place: float(place % 2))
    (folder / "empty").mkdir()
    return folder


def test_one_call_draws_the_picture_and_writes_the_page(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--plot", str(tmp_path / "run.png"), "--html", str(tmp_path / "run.html"), "--samples", "1"]
    assert verify_main([str(runs / "short"), *options, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["last_rollout"] == 1
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
    assert "8 of 16 trajectories, of 1 of 2 rollouts" in (tmp_path / "run.html").read_text()


def test_two_runs_are_compared_and_drawn_over_each_other(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [str(runs / "short"), str(runs / "long" / "traces")]
    assert compare_main([*folders, "--plot", str(tmp_path / "both.png")]) == 0
    printed = capsys.readouterr().out
    assert "A  short  " in printed
    assert "B  long  " in printed
    assert "A has rollouts 0 to 1, B has rollouts 0 to 2: 2 in common" in printed
    assert (tmp_path / "both.png").read_bytes().startswith(b"\x89PNG")
    assert compare_main([*folders, "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert [step["rollout_id"] for step in value["steps"]] == [0, 1]
    assert value["steps"][0]["differences"]["reward_mean"] == [pytest.approx(1 / 2 - 1 / 8)]


def test_a_folder_without_a_run_makes_the_comparison_incomplete(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare_main([str(runs / "short"), str(runs / "empty"), str(runs / "long")]) == 2
    printed = capsys.readouterr().out
    assert "note: B has no rollout to compare: " in printed
    assert "mean over 2 rollouts in common" in printed


def test_one_run_is_no_comparison(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare_main([str(runs / "short")]) == 2
    assert "compare takes 2 to 7 runs" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--plot", "--html"])
def test_a_file_that_cannot_be_written_is_named(flag: str, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    taken = runs / "empty"
    assert verify_main([str(runs / "short"), flag, str(taken)]) == 2
    assert f"{taken} cannot be written" in capsys.readouterr().err
    assert list(taken.iterdir()) == []


@pytest.mark.parametrize(("flag", "package"), [("--plot", "matplotlib"), ("--html", "jinja2")])
def test_a_machine_that_cannot_draw_says_what_to_install(flag: str, package: str, runs: Path, tmp_path: Path) -> None:
    program = (
        f"import sys; sys.modules[{package!r}] = None; from progress.command import verify_main; "
        "sys.exit(verify_main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", program, str(runs / "short"), flag, str(tmp_path / "out")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 2
    assert f"needs {package}, which is not installed: pip install {package}" in done.stderr

"""The pictures of runs are whole, 1200 pixels wide, and drawn whatever a run holds."""

from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from local_engine.picture import DARK, LIGHT, Theme
from progress.overlay import MOST_RUNS, plot_overlay
from progress.plot import plot_run, run_name, run_png, smooth
from progress.run_report import RunReport, Verdict
from progress.step import Evaluation, Step

ROOT = Path(__file__).parent.parent.parent


def step(rollout: int, mean: float | None = 0.5) -> Step:
    return Step(
        rollout_id=rollout,
        trajectories=8,
        reward_mean=mean,
        reward_std=None if mean is None else 0.3,
        solved=mean,
        groups=2,
        groups_with_signal=1,
        discarded=1,
        truncated=1,
        never_ran=0.0,
        tokens=None if mean is None else 100.0,
        turns=2.0,
        exit_statuses={"Submitted": 8, "NeverRan": 1},
        ranks=(0,),
        ranks_missing=(),
        rollout_seconds=None if mean is None else 20.0,
        training_seconds=None if mean is None else 10.0,
        written_at=1e9,
    )


def run(*steps: Step, folder: str = "runs/one/traces") -> RunReport:
    return RunReport(
        folder=Path(folder),
        read_at=1e9,
        verdict=Verdict.ADVANCING,
        reason="last rollout 1 is 3 s old",
        last_rollout=1,
        last_trained=1,
        num_rollout=None,
        steps=steps,
        evaluations=(),
        exit_statuses={"Submitted": 8},
        findings=(),
    )


def picture(content: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(content))
    image.load()
    return image


def colours(image: Image.Image) -> set[str]:
    found = image.convert("RGB").getcolors(1 << 24) or []
    return {"#%02X%02X%02X" % colour for _, colour in found if isinstance(colour, tuple)}  # noqa: UP031


RUNS = {
    "run": run(*(step(n, n / 25) for n in range(25))),
    "one": run(step(0)),
    "nothing": run(),
    "evaluation only": replace(run(), evaluations=(Evaluation(0, 4, 0.5, 0.5, None),)),
    "gaps": run(*(step(n) for n in (0, 1, 5, 9, 10, 11))),
    "no rewards": run(*(step(n, None) for n in range(4))),
    "some rewards": run(*(step(n, 0.5 if n % 3 else None) for n in range(9))),
    "negative": run(*(step(n, n - 5.0) for n in range(9))),
    "not a number": run(step(0, float("nan")), step(1, float("inf")), step(2)),
    "beyond every axis": run(step(0, 1e308), step(1, -1e308), replace(step(2), tokens=1e300, rollout_seconds=1e300)),
    "far apart": run(step(0), step(999_999_999)),
    "long": run(*(step(n) for n in range(2000))),
    "full of gaps": run(*(step(n) for n in range(0, 400, 2))),
    "left over": run(step(0), step(1), replace(step(2), leftover=True), replace(step(3), leftover=True)),
    "one slow": run(*(step(n) for n in range(9)), replace(step(9), rollout_seconds=1e6)),
    "a formula": run(step(0), folder="runs/$\\frac$_x^{/traces"),
    "other script": run(step(0), folder="runs/\u8a13\u7df4\x1b[31m/traces"),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("report", RUNS.values(), ids=RUNS.keys())
def test_every_run_gives_a_picture_1200_pixels_wide(report: RunReport, tmp_path: Path) -> None:
    plot_run(tmp_path / "run.png", report)
    image = picture((tmp_path / "run.png").read_bytes())
    assert image.width == 1200
    assert image.height < 1700
    assert [item.name for item in tmp_path.iterdir()] == ["run.png"]


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_reward_discards_and_time_have_colours_told_apart(theme: Theme) -> None:
    found = colours(picture(run_png(RUNS["run"], theme)))
    assert {theme.curves[0], theme.curves[1], theme.curves[4]} <= {colour.upper() for colour in found}


def test_a_run_without_rewards_still_shows_its_discards() -> None:
    found = colours(picture(run_png(RUNS["no rewards"])))
    assert LIGHT.curves[1] in found
    assert LIGHT.curves[4] not in found


def test_a_single_rollout_between_gaps_is_seen() -> None:
    alone = picture(run_png(run(step(0), step(500), step(1000))))
    assert LIGHT.curves[0] in colours(alone)


def test_a_picture_that_cannot_be_written_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        plot_run(tmp_path / "file" / "run.png", RUNS["one"])
    assert [item.name for item in tmp_path.iterdir()] == ["file"]


def test_the_moving_mean_keeps_the_places_of_missing_values() -> None:
    assert smooth([1.0, None, 3.0, None], 2) == [1.0, None, 2.0, None]


@pytest.mark.parametrize(("folder", "name"), [("a/b/traces", "b"), ("a/b", "b")])
def test_a_run_is_called_like_its_save_folder(folder: str, name: str) -> None:
    assert run_name(Path(folder)) == name


@pytest.mark.filterwarnings("error")
def test_as_many_runs_as_there_are_colours_lie_over_each_other(tmp_path: Path) -> None:
    reports = [run(*(step(n, 0.1 * number) for n in range(5 + number))) for number in range(MOST_RUNS - 2)]
    pairs = [(f"_run ${number}", report) for number, report in enumerate([*reports, run(), RUNS["no rewards"]])]
    plot_overlay(tmp_path / "runs.png", pairs)
    image = picture((tmp_path / "runs.png").read_bytes())
    assert image.width == 1200
    assert set(LIGHT.curves) <= {colour.upper() for colour in colours(image)}


def test_matplotlib_is_imported_only_to_draw() -> None:
    program = "import sys, progress.plot, progress.overlay; sys.exit('matplotlib' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=120)

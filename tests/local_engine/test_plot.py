"""The picture of a run is whole, 1200 pixels wide, and drawn for any number of rollouts."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest

from local_engine.picture import moving_mean
from local_engine.plot import reward_png

ROOT = Path(__file__).parent.parent.parent


def size(path: Path) -> tuple[int, int]:
    content = path.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    assert content[-8:-4] == b"IEND"
    width, height = struct.unpack(">II", content[16:24])
    return width, height


@pytest.mark.parametrize(
    ("steps", "heldout"),
    [
        (list(range(25)), [(0, 0.35), (25, 0.92)]),
        ([0], [(0, 0.35)]),
        ([0], []),
        ([], []),
        ([], [(0, 0.35)]),
        ([0, 1, 2, 5, 6], [(0, 0.1)]),
        (list(range(2000)), []),
    ],
    ids=["run", "one", "no evaluation", "nothing", "evaluation only", "gap", "long"],
)
def test_every_length_of_a_run_gives_a_picture_1200_pixels_wide(
    tmp_path: Path, steps: list[int], heldout: list[tuple[int, float]]
) -> None:
    path = tmp_path / "reward.png"
    reward_png(path, steps, [0.5] * len(steps), heldout)
    assert size(path) == (1200, 675)
    assert [item.name for item in tmp_path.iterdir()] == ["reward.png"]


def test_a_reward_for_each_step_is_needed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="2 steps and 1 rewards"):
        reward_png(tmp_path / "reward.png", [0, 1], [0.5], [])


def test_a_picture_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "reward.png"
    path.write_bytes(b"the old one")
    with pytest.raises(TypeError):
        reward_png(path, [0], ["no number"], [])  # pyright: ignore[reportArgumentType]
    assert path.read_bytes() == b"the old one"


def test_the_moving_mean_begins_with_the_first_value() -> None:
    assert moving_mean([0.0, 1.0, 0.5, 0.0]) == [0.0, 0.5, 0.5, 0.5]


def test_matplotlib_is_imported_only_to_draw() -> None:
    program = "import sys, local_engine.plot; sys.exit('matplotlib' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=120)

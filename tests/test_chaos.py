"""Nothing is lost silently while connections break and the agent server is killed under load."""

import os
import subprocess

import pytest

from tests.miles_hooks.miles_process import PYTEST, REPOSITORY, miles_environment

CHAOS = REPOSITORY / "tests" / "miles_hooks" / "chaos.py"


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", ["5", "6"])
def test_every_trajectory_ends_with_one_name_and_both_sides_count_the_same(seed: str) -> None:
    done = subprocess.run(
        [*PYTEST, "-s", "--timeout=540", str(CHAOS)],
        cwd=REPOSITORY,
        env=os.environ | miles_environment() | {"CHAOS_SEED": seed},
        capture_output=True,
        text=True,
        timeout=580,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]

"""The benchmarks of the agent path still run; their figures are for a person to read."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.long
@pytest.mark.parametrize(
    ("script", "flags", "rows"),
    [
        ("agent_server.py", "--rounds 1 --trials 2 --at-once 2", ("oracle", "shell")),
        (
            "local_async.py",
            "--num-rollout 2 --arguments=--rollout-batch-size=1|--n-samples-per-prompt=2|--global-batch-size=2",
            ("in turns", "side by side"),
        ),
        ("agent_client.py", "--rounds 1 --calls 40 --at-once 8", ("run", "httpx, new connections")),
    ],
)
def test_a_benchmark_prints_a_row_for_each_side(script: str, flags: str, rows: tuple[str, ...]) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / script), *(part.replace("|", " ") for part in flags.split())]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(row in done.stdout for row in rows)

"""What keeps this machine from running the sandbox is named, not guessed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = """
from sandbox import SandboxUnavailable, preflight
try:
    preflight()
except SandboxUnavailable as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("-f 8000", "`ulimit -H -f` is 8000, 131072 or more is needed"),
        ("-n 512", "`ulimit -H -n` is 512, 1024 or more is needed"),
        ("-v 4000000", "`ulimit -H -v` is 4000000, 8388608 or more is needed"),
        ("-S -f 8000", ""),
    ],
)
def test_a_hard_limit_below_a_trials_is_named_with_what_is_needed(limit: str, words: str) -> None:
    argv = ["bash", "-c", f'ulimit {limit} && exec "$@"', "bash", sys.executable, "-c", SCRIPT]
    ended = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert words in ended.stdout
    assert "user namespaces" not in ended.stdout
    assert bool(ended.stdout) == bool(words)

"""Ctrl-C while a command is still importing ends it as at any other time: its exit code and no traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Sends this process a real SIGINT when the package named first is looked for, and runs the script named second.
INTERRUPTED = """
import os, runpy, signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == package:
            os.kill(os.getpid(), signal.SIGINT)

package, script = sys.argv[1:3]
sys.argv = sys.argv[2:]
sys.path.insert(0, os.getcwd())
sys.meta_path.insert(0, Interrupt())
runpy.run_path(script, run_name="__main__")
"""


@pytest.mark.parametrize(
    ("package", "command"),
    [
        ("harbor", ("agent_server.py", "--harbor-tasks-dir", "tasks")),
        ("harbor", ("agent_server.py", "check", "--tasks-dir", "tasks")),
        ("tyro", ("verify_progress.py", "runs/none")),
        ("tyro", ("verify_progress.py", "compare", "runs/none", "runs/other")),
        ("rich", ("run.py", "--dry-run")),
        ("tyro", ("run-glm47-flash-agentic-async.py", "--dry-run")),
        ("tyro", ("run_glm52_lora_tb2_daytona.py", "--dry-run")),
        ("tyro", ("download_and_process_data.py", "--input", "none.jsonl", "--output", "out.jsonl")),
    ],
)
def test_ctrl_c_while_importing_is_answered(package: str, command: tuple[str, ...]) -> None:
    argv = [sys.executable, "-c", INTERRUPTED, package, *command]
    ended = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 130, ended.stderr
    assert "Traceback" not in ended.stderr

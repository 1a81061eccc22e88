"""TEST STUB, no sandbox: runs commands and tests/test.sh of a task folder in a throw-away directory.

The real environment is exercised in test_oracle_and_nop.py; this stub makes hundreds of results cheap to grade. It
stands in for /app, /logs and /tests by replacing these paths in the scripts.
"""

import re
import shutil
import subprocess
from pathlib import Path

from harbor.models.task.task import Task


def grade(task_dir: Path, scratch: Path, command: str | None) -> float:
    """Reward after `command` ran in the task's working directory (None: nothing was done)."""
    app, logs = scratch / "app", scratch / "logs"
    app.mkdir(parents=True)
    (logs / "verifier").mkdir(parents=True)
    for line in (task_dir / "environment" / "Dockerfile").read_text().splitlines():
        match line.split():
            case ["WORKDIR", path]:
                (scratch / path.removeprefix("/")).mkdir(parents=True, exist_ok=True)
            case ["COPY", "files/", "/app/"]:
                shutil.copytree(task_dir / "environment" / "files", app, dirs_exist_ok=True)
            case ["FROM", _]:
                pass
            case other:
                raise AssertionError(f"this stub does not know the Dockerfile line {other}")
    if command is not None:
        subprocess.run(["bash", "-c", re.sub(r"/app\b", str(app), command)], cwd=app, timeout=20, check=False)
    test = (task_dir / "tests" / "test.sh").read_text()
    test = test.replace("cd /app", f"cd {app}").replace("/logs/", f"{logs}/")
    verdict = subprocess.run(["bash", "-c", test], cwd=scratch, timeout=20, capture_output=True, check=False)
    text = (logs / "verifier" / "reward.txt").read_text()
    assert text.endswith("\n"), verdict.stderr
    return float(text)


def solution(task_dir: Path) -> str:
    return (task_dir / "solution" / "solve.sh").read_text()


def instruction(task_dir: Path) -> str:
    return Task(task_dir).instruction

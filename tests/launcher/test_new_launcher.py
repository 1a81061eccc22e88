"""The launcher that CONTRIBUTING.md goes through: a model of its own, short, and complete."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from launcher.scripts import ROOT

SCRIPT = ROOT / "examples" / "new_launcher" / "run_glm5.py"


def plan(*flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), "--dry-run", "--format", "json", *flags]
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_it_is_short() -> None:
    assert len(SCRIPT.read_text().splitlines()) < 80


def test_its_plan_is_that_of_its_model_and_names_only_flags_that_miles_has() -> None:
    done = plan()
    assert done.returncode == 0, done.stderr
    arguments: list[str] = json.loads(done.stdout)["arguments"]
    assert arguments[arguments.index("--rotary-base") + 1] == "1000000"
    assert arguments[arguments.index("--expert-model-parallel-size") + 1] == "256"
    known: dict[str, Any] = json.loads((ROOT / "tests" / "data" / "miles_flags.json").read_text())
    names = {name for group in known.values() if isinstance(group, list) for name in group}
    assert not [argument for argument in arguments if argument.startswith("--") and argument not in names]


def test_its_saved_plan_can_be_rehearsed(tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    saved.write_text(plan().stdout)
    done = plan("--engine", "local", "--from-plan", str(saved), "--save-dir", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    assert "Rehearses" in " ".join(json.loads(done.stdout)["notes"])


def test_it_refuses_what_cannot_work() -> None:
    done = plan("--num-nodes", "3")
    assert done.returncode == 2 and "pass --num-nodes 1, 2, 4, 8, 16" in done.stderr

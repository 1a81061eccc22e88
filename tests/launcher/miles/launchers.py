"""The three launchers by a short name."""

from __future__ import annotations

from typing import Any

from launcher.main import Launcher
from launcher.scripts import load_script

SCRIPTS = {
    "sync": "run.py",
    "async": "run-glm47-flash-agentic-async.py",
    "lora": "run_glm52_lora_tb2_daytona.py",
}


def load(name: str) -> Any:
    return load_script(SCRIPTS[name])


def launcher(name: str) -> Launcher[Any]:
    return load(name).LAUNCHER

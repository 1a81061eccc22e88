"""The three launchers by a short name; two of them have file names that no import statement can hold."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from launcher.main import Launcher

ROOT = Path(__file__).parents[3]
SCRIPTS = {
    "sync": "run.py",
    "async": "run-glm47-flash-agentic-async.py",
    "lora": "run_glm52_lora_tb2_daytona.py",
}


def load(name: str) -> Any:
    module_name = f"launcher_script_{name}"
    if module_name not in sys.modules:
        spec = importlib.util.spec_from_file_location(module_name, ROOT / SCRIPTS[name])
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module
        spec.loader.exec_module(module)
    return sys.modules[module_name]


def launcher(name: str) -> Launcher[Any]:
    return load(name).LAUNCHER

"""The launcher scripts as modules; file names with hyphens are nothing that an import statement can hold."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
SCRIPTS: Final = ("run.py", "run-glm47-flash-agentic-async.py", "run_glm52_lora_tb2_daytona.py")


def load_script(script: str) -> ModuleType:
    """The module of one of `SCRIPTS`, made once; its LAUNCHER is what it declares."""
    name = "launcher_script_" + script.removesuffix(".py").replace("-", "_")
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / script)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]

"""Python packages: importable on this machine, found out without importing them."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from launcher.preflight import Finding, failure, first_three, ok

_NAME = "packages"


def check_packages(modules: Sequence[str], search_path: Sequence[Path]) -> Finding:
    """Dotted names, looked for in `search_path` and then where this Python looks."""
    missing = [module for module in modules if not is_importable(module, search_path)]
    if missing:
        places = ", ".join(str(path) for path in search_path) or "this Python"
        return failure(
            _NAME,
            f"{len(missing)} of {len(modules)} Python packages are not there: {first_three(missing)}",
            f"install them, or correct the folders that are searched ({places})",
        )
    return ok(_NAME, f"{len(modules)} Python packages can be imported")


def is_importable(module: str, search_path: Sequence[Path]) -> bool:
    """A folder without __init__.py is no package: the folder of a checkout is often named like the package in it."""
    spec = _find(module, [str(path) for path in search_path])
    return spec is not None and spec.origin is not None


def _find(module: str, search_path: list[str]) -> ModuleSpec | None:
    top, *rest = module.split(".")
    # Editable installs are found by hooks of this Python, not by a path.
    spec = PathFinder.find_spec(top, search_path) or importlib.util.find_spec(top)
    name = top
    for part in rest:
        if spec is None or spec.submodule_search_locations is None:
            return None
        name = f"{name}.{part}"
        spec = PathFinder.find_spec(name, list(spec.submodule_search_locations))
    return spec

"""The plan kept beside the run, secrets left out."""

from __future__ import annotations

import os
from pathlib import Path

from launcher.errors import PreflightError
from launcher.plan import Plan


def write_launch_files(plan: Plan) -> None:
    """Writes `<save-dir>/launch/<run-id>.json` and `<traces>/launch.json`, each whole or not at all."""
    for path in plan.launch_files():
        try:
            _write(path, plan.as_json() + "\n")
        except OSError as error:
            raise PreflightError(f"{path} cannot be written ({error.strerror}); name another --save-dir") from error


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)

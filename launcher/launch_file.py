"""The plan kept beside the run, secrets left out."""

from __future__ import annotations

from disk.atomic_file import atomic_file
from launcher.errors import PreflightError
from launcher.plan import Plan


def write_launch_files(plan: Plan) -> None:
    """Writes `<save-dir>/launch/<run-id>.json` and `<traces>/launch.json`, each whole or not at all."""
    for path in plan.launch_files():
        try:
            with atomic_file(path) as file:
                file.write(f"{plan.as_json()}\n".encode())
        except OSError as error:
            raise PreflightError(f"{path} cannot be written ({error.strerror}); name another --save-dir") from error

"""What is written beside a run before it starts: its plan, secrets left out, and files that its arguments name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from disk.atomic_file import atomic_file
from launcher.errors import PreflightError
from launcher.plan import Plan


def write_launch_files(plan: Plan) -> None:
    """Writes `<save-dir>/launch/<run-id>.json` and `<traces>/launch.json`, each whole or not at all."""
    first, *beside_dumps = plan.launch_files()
    write_texts({str(first): f"{plan.as_json()}\n"}, "--save-dir")
    write_texts({str(path): f"{plan.as_json()}\n" for path in beside_dumps}, "--save-traces-dir")


def write_texts(texts: Mapping[str, str], option: str) -> None:
    """`texts` by path below the folder of `option`; each file is whole or not there. Raises PreflightError."""
    for name, text in texts.items():
        path = Path(name)
        try:
            with atomic_file(path) as file:
                file.write(text.encode())
        except OSError as error:
            raise PreflightError(f"{path} cannot be written ({error.strerror}); name another {option}") from error

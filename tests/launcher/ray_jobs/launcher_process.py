"""launch_process.py as a child whose output a test reads and which it signals."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

from tests.launcher.ray_jobs.ray_cluster import REPOSITORY, eventually

_numbers = itertools.count()
_SCRIPT = Path(__file__).with_name("launch_process.py")


class LauncherProcess:
    def __init__(self, address: str, mode: str, record: Path, *pairs: str) -> None:
        self.submission_id = f"launched-{os.getpid()}-{next(_numbers)}"
        self._out, self._err = record.with_suffix(".out"), record.with_suffix(".err")
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, str(_SCRIPT), address, mode, self.submission_id, str(record), *pairs],
                stdout=out,
                stderr=err,
                cwd=REPOSITORY,
                env=environment,
                start_new_session=True,
            )

    def head_pid(self) -> int:
        """Of the process that keeps its own head, as it printed it."""
        line = eventually(
            lambda: next((line for line in self._out.read_text().splitlines() if "head" in line), ""), "a head"
        )
        return int(line.split()[1])

    def wait_for_error(self, text: str) -> None:
        eventually(lambda: text in self._err.read_text(), text)

    def end(self) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        code = self.process.wait(timeout=120)
        return code, self._out.read_text(), self._err.read_text()

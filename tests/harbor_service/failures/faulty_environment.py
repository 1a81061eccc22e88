"""A Harbor environment of our own: the real local sandbox, which fails where its task's folder says."""

import json
from pathlib import Path
from typing import Any

from harbor.environments.base import ExecResult

from sandbox.environment import LocalEnvironment
from tests.harbor_service.failures.planted import raise_planted

FAULT = "fault.json"
PLANTED = "# planted"


class FaultyEnvironment(LocalEnvironment):
    """`fault.json` in the task's folder holds `{place: error name}`.

    Places: `create`, `start`, `upload` and `download` (the verifier's), `command` (one that holds PLANTED runs and then
    raises).
    """

    def __init__(self, environment_dir: Path, *args: Any, **kwargs: Any) -> None:
        file = environment_dir.parent / FAULT
        self._faults: dict[str, str] = json.loads(file.read_text()) if file.exists() else {}
        self._fail("create")
        super().__init__(environment_dir, *args, **kwargs)

    async def start(self, force_build: bool) -> None:
        self._fail("start")
        await super().start(force_build)

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        result = await super().exec(command, cwd, env, timeout_sec, user)
        if PLANTED in command:
            self._fail("command")
        return result

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        if target_dir == "/tests":
            self._fail("upload")
        await super().upload_dir(source_dir, target_dir)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        if source_dir == "/logs/verifier":
            self._fail("download")
        await super().download_dir(source_dir, target_dir)

    def _fail(self, where: str) -> None:
        if where in self._faults:
            raise_planted(self._faults[where])

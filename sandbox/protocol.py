"""What a trial's environment asks of its sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from sandbox.cell import Finished
from sandbox.limits import Limits
from sandbox.rootfs import RootFs


class TrialSandbox(Protocol):
    """`await start()`, any number of `run` and `files` operations, `restart()` between phases, `await close()`."""

    limits: Limits

    @property
    def files(self) -> RootFs: ...

    @property
    def read_only(self) -> list[str]: ...

    async def start(self) -> None: ...

    async def run(
        self, command: str, cwd: str = "/", env: Mapping[str, str] | None = None, timeout: float | None = None
    ) -> Finished: ...

    async def make_room(self, size: int, inodes: int) -> None: ...

    async def restart(self) -> None: ...

    async def close(self) -> None: ...

"""Clearing up after a server that could not: `remove_leftovers(base_dir)` at the start of the next one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import TypedDict

from sandbox.trial_dir import OWNER_FILE, process_start


class _Process(TypedDict):
    pid: int
    start: int | None


_UNOWNED_AGE_S = 60.0


def remove_leftovers(base_dir: Path) -> list[str]:
    """Remove the trial folders below `base_dir` whose server is gone; running servers' trials are left alone.

    A trial's processes and mounts end with its server, by the kernel. Should its holder process still be there - it is
    known by process id and start time - it is killed, and everything in the trial with it.

    Returns: the names of the removed folders.
    """
    removed: list[str] = []
    if not base_dir.is_dir() or base_dir.is_symlink():
        return removed
    for path in sorted(base_dir.iterdir()):
        if not path.name.startswith("trial-") or path.is_symlink() or not path.is_dir():
            continue
        owners = _owners(path)
        if owners is None:
            # Being made this moment, or abandoned in the moment between the folder and its owner file.
            if time.time() - path.lstat().st_mtime < _UNOWNED_AGE_S:
                continue
            owners = []
        if owners and _alive(owners[0]):
            continue
        for holder in owners[1:]:
            if _alive(holder):
                os.kill(holder["pid"], signal.SIGKILL)
        shutil.rmtree(path)
        removed.append(path.name)
    return removed


def _owners(path: Path) -> list[_Process] | None:
    try:
        return json.loads((path / OWNER_FILE).read_text())
    except FileNotFoundError:
        return None


def _alive(process: _Process) -> bool:
    start = process_start(process["pid"])
    return start is not None and start == process["start"]

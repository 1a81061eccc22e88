"""The folders of trials below --trials-dir: their names, whose they are, and when they go."""

import contextlib
import json
import logging
import os
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from disk.usage import disk_use
from sandbox.trial_dir import process_start

_logger = logging.getLogger(__name__)
MARKER: Final = ".agent-server.json"
_NAME_LENGTH: Final = 32  # characters of the task's name, as Harbor names its trials


@dataclass(frozen=True)
class _Ended:
    path: Path
    ended_at: float  # Unix seconds
    size: int  # bytes on disk


class TrialFolders:
    """Claims a folder for each trial and removes old ones.

    A folder is ours when it holds our marker, which names the server process that claimed it. Only such folders are
    ever removed, and none whose trial runs here or whose server, if it is another one, is alive.
    """

    def __init__(self, root: Path, *, keep_seconds: float, keep_bytes: float) -> None:
        self.root = root
        self._keep_seconds = keep_seconds
        self._keep_bytes = keep_bytes
        self._me = {"pid": os.getpid(), "start": process_start(os.getpid())}
        self._running: set[str] = set()
        self._known: dict[str, _Ended] = {}
        self._stuck: set[str] = set()

    def new_name(self, task: str) -> str:
        """A name for a trial of `task`; its folder comes with `claim`: a trial that waits costs no disk."""
        kept = "".join(sign if sign.isascii() and (sign.isalnum() or sign in "._-") else "-" for sign in task)
        return f"{kept[:_NAME_LENGTH].strip('._-') or 'trial'}__{uuid.uuid4().hex[:10]}"

    def claim(self, name: str) -> Path:
        """Make the folder; until `ended` it is never removed. Raises OSError, and leaves nothing then."""
        folder = self.root / name
        self._running.add(name)
        try:
            folder.mkdir()
            (folder / MARKER).write_text(json.dumps(self._me))
        except OSError:
            # Without its marker nobody would ever remove it.
            shutil.rmtree(folder, ignore_errors=True)
            self._running.discard(name)
            raise
        return folder

    def ended(self, name: str) -> None:
        """The trial is over; its folder's age counts from now."""
        # A folder that could not be made, or was removed by hand, has no age.
        with contextlib.suppress(OSError):
            os.utime(self.root / name / MARKER)
        self._running.discard(name)

    def prune(self, now: float) -> list[str]:
        """Remove what is older or, oldest first, more than may be kept; answers the names of removed folders."""
        kept = sorted(self._ended(), key=lambda folder: folder.ended_at)
        total = sum(folder.size for folder in kept)
        removed: list[str] = []
        for folder in kept:
            if now - folder.ended_at <= self._keep_seconds and total <= self._keep_bytes:
                break
            total -= folder.size
            if self._remove(folder.path):
                removed.append(folder.path.name)
        return removed

    def _ended(self) -> list[_Ended]:
        with os.scandir(self.root) as entries:
            names = {entry.name for entry in entries if entry.is_dir(follow_symlinks=False)}
        # Looked into once: a run of days leaves a hundred thousand folders, and they do not change any more.
        self._known = {name: folder for name, folder in self._known.items() if name in names}
        for name in names - self._known.keys() - self._running:
            folder = self.root / name
            if not self._is_ours(folder):
                continue
            with contextlib.suppress(OSError):  # removed by another server in this moment
                self._known[name] = _Ended(folder, (folder / MARKER).lstat().st_mtime, disk_use(folder))
        return list(self._known.values())

    def _is_ours(self, folder: Path) -> bool:
        marker = folder / MARKER
        try:
            owner: object = json.loads(marker.read_bytes()) if marker.is_file() and not marker.is_symlink() else None
        except (OSError, ValueError):
            return False
        if not isinstance(owner, dict):
            return False
        process = cast("dict[str, Any]", owner)
        pid, start = process.get("pid"), process.get("start")
        if not isinstance(pid, int) or not isinstance(start, int):
            return False
        return process == self._me or process_start(pid) != start

    def _remove(self, folder: Path) -> bool:
        try:
            shutil.rmtree(folder)
        except OSError as error:
            if folder.name not in self._stuck:
                self._stuck.add(folder.name)
                _logger.warning("the trial folder %s cannot be removed: %s", folder, error)
            return False
        return True

"""Files that are either whole or absent: written beside their place, flushed to the disk, renamed."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_TEMPORARY = re.compile(r"\..+\.tmp-(?P<owner>.+-\d+)")


@contextmanager
def atomic_file(path: Path) -> Generator[BinaryIO]:
    """Open a binary file that takes the place of `path` when the block ends without an exception.

    The folder is made if it is missing, and the file keeps the mode of the one it replaces. Raises OSError (disk full,
    no permission, ...); `path` then holds what it held before and no temporary file is left.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp-{owner()}")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            temporary.chmod(path.stat().st_mode & 0o777)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def owner() -> str:
    """This process as the last part of a temporary name: host and process id."""
    return f"{socket.gethostname()}-{os.getpid()}"


def is_left_over(name: str) -> bool:
    """Whether `name`, as `owner` made it, is of a process of this host that is gone.

    Of another host's process it cannot be seen from here whether it lives; it counts as alive.
    """
    host, _, pid = name.rpartition("-")
    if host != socket.gethostname():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def remove_left_over_files(folder: Path) -> list[Path]:
    """Remove the temporary files that killed processes left in `folder` itself; returns their paths."""
    if not folder.is_dir():
        return []
    removed = [
        path
        for path in sorted(folder.iterdir())
        if (match := _TEMPORARY.fullmatch(path.name)) and is_left_over(match["owner"]) and path.is_file()
    ]
    for path in removed:
        path.unlink(missing_ok=True)
    return removed


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable: a rename is on the disk only once its folder is."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

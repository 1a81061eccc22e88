"""A file that is either whole or not there."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path) -> Generator[BinaryIO]:
    """A new file that takes the name `path` when the block ends well, and vanishes when it does not.

    It is written under another name in the same folder, synced and renamed, so that whoever is killed in between leaves
    the old file as it was. Raises OSError as the file system does.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    try:
        with fresh.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            fresh.chmod(path.stat().st_mode & 0o777)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)

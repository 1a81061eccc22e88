"""Reading files that a user names: a pipe never blocks, and one without end is not read to it."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

MOST_BYTES = 64 * 2**20


def open_regular(path: Path) -> BinaryIO:
    """Raises OSError, also for what is no regular file."""
    # Opening a pipe waits for its other end, unless told not to.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """Raises OSError, also for what is no regular file or larger."""
    with open_regular(path) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"larger than {most_bytes} bytes", str(path))
    return content


def is_filled(path: Path) -> bool:
    """A regular file with something in it."""
    try:
        found = path.stat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size > 0

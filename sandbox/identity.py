"""The kernel user a trial runs as.

A server that runs as root gives every trial a user id of its own; an ordinary user has only its own.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Identity:
    """uid: user and group id of the trial, or None for the server's own user."""

    uid: int | None

    def prefix(self) -> list[str]:
        """The argument-list prefix that makes a program run as this user."""
        if self.uid is None:
            return []
        # Popen(user=...) would fork the whole server instead of using vfork; setpriv costs twice as much as chroot.
        return ["chroot", f"--userspec=+{self.uid}:+{self.uid}", "--groups=", "/"]

    def own(self, path: Path) -> None:
        """Give a file or folder of ours to this user."""
        if self.uid is not None:
            os.chown(path, self.uid, self.uid, follow_symlinks=False)

    @contextmanager
    def file_access(self) -> Generator[None]:
        """Make the calling thread's file operations those of the trial's user.

        Root has no user id inside the trial's tmpfs and may create nothing there (EOVERFLOW). Only this thread is
        changed, so there must be no `await` within the block.
        """
        if self.uid is None:
            yield
            return
        _LIBC.setfsgid(self.uid)
        _LIBC.setfsuid(self.uid)
        try:
            yield
        finally:
            _LIBC.setfsuid(os.geteuid())
            _LIBC.setfsgid(os.getegid())

"""A token in a file of its own."""

from __future__ import annotations

from pathlib import Path

from disk.regular_file import read_regular

_MOST_BYTES = 4096


def read_token(path: Path) -> str:
    """One line of printable ASCII, without the white space around it.

    Raises OSError, also for what is no regular file, and ValueError where the file holds anything else.
    """
    token = read_regular(path, _MOST_BYTES).decode("utf-8", "replace").strip()
    if not token or not token.isascii() or not token.isprintable():
        raise ValueError(f"{path} holds no token of printable ASCII")
    return token

"""Commands that Harbor sends around every verifier run and that need no process.

Before the tests Harbor removes two reward files and makes the script executable, each with a command of its own. For
those exact forms the server changes the files itself: two shells less a trial.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_PATH = r"/[A-Za-z0-9._/-]+"
_REMOVE = re.compile(rf"rm -f -- {_PATH}(?: {_PATH})*")
_CHMOD = re.compile(rf"chmod \+x {_PATH}")


@dataclass(frozen=True)
class Errand:
    """what: `remove` files, or `make_executable`."""

    what: str
    paths: tuple[str, ...]


def errand(command: str) -> Errand | None:
    """The errand that a command line is, or None: then it must be run."""
    if _REMOVE.fullmatch(command):
        return Errand("remove", tuple(command.split()[3:]))
    if _CHMOD.fullmatch(command):
        return Errand("make_executable", tuple(command.split()[2:]))
    return None

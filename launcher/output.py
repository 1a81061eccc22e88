"""Printing where the reader may be gone (`| head -1`) or the disk full: never a reason to lose sight of a job."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from progress.visible import visible


def write(out: TextIO, text: str) -> str | None:
    """What kept it from being written, if anything; from then on the stream leads nowhere."""
    try:
        out.write(text)
        out.flush()
    except OSError as error:
        _lead_nowhere(out)
        return error.strerror or str(error)
    return None


def say(text: str) -> None:
    """One line on standard error. Names and values may come from a file: nothing in them acts on the terminal."""
    write(sys.stderr, f"{visible(text)}\n")


def _lead_nowhere(out: TextIO) -> None:
    """What the stream still holds would make Python itself end with code 120."""
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, out.fileno())
    finally:
        os.close(null)

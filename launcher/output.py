"""Printing where the reader may be gone (`| head -1`) or the disk full: never a reason to lose sight of a job."""

from __future__ import annotations

import sys
from typing import TextIO

from disk.closed_stream import lead_nowhere
from progress.visible import visible


def write(out: TextIO, text: str) -> str | None:
    """What kept it from being written, if anything; from then on the stream leads nowhere."""
    try:
        out.write(text)
        out.flush()
    except OSError as error:
        lead_nowhere(out)
        return error.strerror or str(error)
    return None


def say(text: str) -> None:
    """One line on standard error. Names and values may come from a file: nothing in them acts on the terminal."""
    write(sys.stderr, f"{visible(text)}\n")

"""A stream that nobody reads any more."""

from __future__ import annotations

import os
from typing import IO


def lead_nowhere(stream: IO[str]) -> None:
    """What it still holds is lost: Python would try to write it once more at its end, and end with code 120."""
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, stream.fileno())
    finally:
        os.close(null)

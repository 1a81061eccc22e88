"""From what a source yields to records, one after the other or with the processes of this machine."""

import os
import sys
from collections.abc import Callable, Generator
from pathlib import Path

from miles_data.input_file import COMPRESSED
from miles_data.json_lines import JsonLines
from miles_data.line_workers import in_blocks
from miles_data.records import Outcome, outcome_of
from miles_data.rows import Source
from miles_data.rules import Rules

_WORTH_PROCESSES = 64 << 20  # bytes; what is smaller is done before a process is up
MOST_PROCESSES = 4  # beyond it the writing is what takes the time


def outcomes(
    source: Source, rules: Rules, limit: int | None, lengths_only: bool, flush: Callable[[], None]
) -> Generator[Outcome]:
    """What becomes of each item, in the order of the source, the same whichever way it is made.

    With `lengths_only` prompts may be given as their length in characters. `flush` returns when no line given so far is
    needed any more.
    """
    path = _large_file(source)
    processes = min(_processors(), MOST_PROCESSES)
    if path is None or limit is not None or processes == 1:
        return (outcome_of(item, rules) for item in source.rows())
    return in_blocks(path, source.meter, rules, processes, lengths_only, flush)


def _large_file(source: Source) -> Path | None:
    """The plain file of JSON lines that the source is, where it is large."""
    if sys.platform != "linux" or not isinstance(source, JsonLines) or not isinstance(source.path, Path):
        return None
    path = source.path
    large = path.is_file() and path.suffix not in COMPRESSED and path.stat().st_size >= _WORTH_PROCESSES
    return path if large else None


def _processors() -> int:
    return len(os.sched_getaffinity(0))

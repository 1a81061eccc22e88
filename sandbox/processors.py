"""Which processors a trial may use."""

from __future__ import annotations

import itertools
import os
from collections.abc import Generator
from contextlib import contextmanager

_turn = itertools.count()


@contextmanager
def narrowed(count: int) -> Generator[None]:
    """What the calling thread starts in this block may use `count` of our processors, chosen in turn.

    Processes inside cannot change it: the system call filter refuses them.
    """
    ours = os.sched_getaffinity(0)
    if len(ours) <= count:
        yield
        return
    ordered = sorted(ours)
    first = next(_turn) * count
    os.sched_setaffinity(0, {ordered[(first + i) % len(ordered)] for i in range(count)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, ours)

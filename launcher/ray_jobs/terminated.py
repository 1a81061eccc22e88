"""SIGTERM, with which SLURM, systemd and containers end a process, as an exception like that of Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import NoReturn


class Terminated(KeyboardInterrupt):
    """Passes through whatever lets Ctrl-C through, event loops included."""


@contextmanager
def terminated_by_signal() -> Generator[None]:
    """SIGTERM raises Terminated within the block; outside the main thread, or where it is handled already, not."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminate(_number: int, _frame: object) -> NoReturn:
    raise Terminated

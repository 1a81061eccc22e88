"""A call that nobody has to wait for: neither one that hangs nor the end of the process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future


def in_daemon[T](call: Callable[[], T]) -> Future[T]:
    """Started at once, in a daemon thread: the threads of an executor are joined when the process ends."""
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised again where the answer is taken
            answer.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return answer

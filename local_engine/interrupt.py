"""Ctrl-C and SIGTERM end a run between two states that can be saved, not in the middle of an optimizer step."""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any


class Interrupt:
    """The first signal cancels what may be cancelled and is remembered; a second one ends the process as usual."""

    def __init__(self, on_asked: Callable[[], None]) -> None:
        self.asked: int | None = None
        self._on_asked = on_asked
        self._task: asyncio.Task[Any] | None = None

    @property
    def exit_code(self) -> int:
        """128 + the signal's number, as shells have it: 130 after Ctrl-C."""
        return 128 + int(self.asked or 0)

    def check(self) -> None:
        """Raises CancelledError once a signal has come."""
        if self.asked is not None:
            raise asyncio.CancelledError

    async def cancellable[T](self, work: Coroutine[Any, Any, T]) -> T:
        """Await work that a signal may cancel; everything awaited elsewhere is left to finish."""
        if self.asked is not None:
            work.close()
        self.check()
        task = asyncio.create_task(work)
        self._task = task
        try:
            return await task
        finally:
            self._task = None
            task.cancel()

    @contextmanager
    def signals(self) -> Generator[None]:
        """SIGINT and SIGTERM are this object's inside the block."""
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGINT, signal.SIGTERM)

        def ask(number: int) -> None:
            for each in numbers:
                loop.remove_signal_handler(each)
            self.asked = number
            self._on_asked()
            if self._task is not None:
                self._task.cancel()

        for number in numbers:
            loop.add_signal_handler(number, ask, number)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

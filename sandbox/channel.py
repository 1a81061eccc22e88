"""Reading from the sandbox's pipes without trusting what arrives."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

_CHUNK = 1 << 16
# A process that writes byte by byte wakes us a hundred thousand times a second; bulk comes in fewer and larger parts.
_WAKES, _WITHIN_S, _PAUSE_S = 100, 0.1, 0.02


class Channel:
    """Calls back for what arrives on a non-blocking descriptor, which it owns; must be made inside the event loop."""

    def __init__(self, fd: int, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self._fd = fd
        self._on_data = on_data
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._wakes = 0
        self._since = self._loop.time()
        self._loop.add_reader(fd, self._wake)

    @property
    def closed(self) -> bool:
        return self._fd < 0

    def _wake(self) -> None:
        self._read()
        self._wakes += 1
        if self._wakes < _WAKES or self._fd < 0:
            return
        now = self._loop.time()
        if now - self._since < _WITHIN_S:
            self._loop.remove_reader(self._fd)
            self._loop.call_later(_PAUSE_S, self._resume)
        self._wakes, self._since = 0, now

    def _resume(self) -> None:
        if self._fd >= 0:
            self._loop.add_reader(self._fd, self._wake)

    def _read(self) -> bool:
        """Read one chunk; False when nothing is there."""
        if self._fd < 0:
            return False
        try:
            data = os.read(self._fd, _CHUNK)
        except BlockingIOError:
            return False
        if data:
            self._on_data(data)
            return True
        self.close()
        self._on_end()
        return False

    def drain(self, limit: int) -> None:
        """Read what is already there, at most about `limit` bytes."""
        while limit > 0 and self._read():
            limit -= _CHUNK

    def close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1


class Lines:
    """Splits what a Channel brings into lines; ends the channel that brings more than `budget` bytes in all."""

    def __init__(self, fd: int, on_line: Callable[[str], None], on_end: Callable[[], None], budget: int) -> None:
        self._pending = b""
        self._budget = budget
        self._on_line = on_line
        self._on_end = on_end
        self.channel = Channel(fd, self._on_data, on_end)

    def _on_data(self, data: bytes) -> None:
        self._budget -= len(data)
        if self._budget < 0:
            self.channel.close()
            self._on_end()
            return
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines:
            self._on_line(line.decode("ascii", "replace"))


class Capture:
    """One output stream of a command: keeps the first and the last half of `keep` bytes, counts all of them."""

    def __init__(self, fd: int, keep: int, on_change: Callable[[], None]) -> None:
        self.total = 0
        self._half = max(1, keep // 2)
        self._head = bytearray()
        self._tail = bytearray()
        self._keeping = True
        self._on_change = on_change
        self.channel = Channel(fd, self._on_data, on_change)

    def _on_data(self, data: bytes) -> None:
        self.total += len(data)
        if self._keeping:
            room = self._half - len(self._head)
            if room > 0:
                self._head += data[:room]
                data = data[room:]
            self._tail += data
            if len(self._tail) > 4 * self._half + _CHUNK:
                del self._tail[: -self._half]
        self._on_change()

    def text(self) -> str:
        """The kept output; where bytes were dropped a line says how many."""
        tail = bytes(self._tail)
        dropped = self.total - len(self._head) - min(len(tail), self._half)
        if dropped <= 0:
            return (bytes(self._head) + tail).decode("utf-8", "replace")
        note = f"\n[... {dropped} bytes dropped ...]\n".encode()
        return (bytes(self._head) + note + tail[-self._half :]).decode("utf-8", "replace")

    def discard(self) -> None:
        """Forget the bytes and keep none of those to come: a background process may go on writing."""
        self._keeping = False
        self._head.clear()
        self._tail.clear()

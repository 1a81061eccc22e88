"""Writes to a file in a thread of its own, so that the disk's time is not added to the processor's.

Both the copy into the page cache and the wait for the disk release the interpreter.
"""

import os
from queue import Queue
from threading import Thread
from typing import BinaryIO

_BLOCK = 2 << 20  # bytes handed over at a time
_PIECES = 512  # writev takes at most 1024
_SYNC = 64 << 20  # synced while more is being made; the last sync is then short


class BackgroundWriter:
    """Takes pieces in order; at most a few blocks wait. Close it before the file, whose own buffer stays empty.

    An OSError of the thread (disk full) is raised by the next call.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._descriptor = file.fileno()
        self._pieces: list[bytes | memoryview] = []
        self._size = 0
        self._blocks: Queue[list[bytes | memoryview] | None] = Queue(maxsize=3)
        self._handed_over = False  # blocks, since the last flush
        self._since_sync = 0
        self._error: OSError | None = None
        self._thread = Thread(target=self._run, name="background writer", daemon=True)
        self._thread.start()

    def write(self, piece: bytes | memoryview) -> None:
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size >= _BLOCK or len(self._pieces) == _PIECES:
            self._hand_over()

    def _hand_over(self) -> None:
        self._raise_error()
        if self._pieces:
            self._blocks.put(self._pieces)
            self._handed_over = True
            self._pieces, self._size = [], 0

    def flush(self) -> None:
        """Wait until everything is in the file (not: on the disk)."""
        if self._handed_over:
            self._hand_over()
            self._blocks.join()
            self._handed_over = False
        elif self._pieces:
            # The thread writes nothing now, and to wait for it would take longer than to write.
            self._write(self._pieces)
            self._pieces, self._size = [], 0
            if self._since_sync >= _SYNC:
                self._since_sync = 0
                self._blocks.put([])
        self._raise_error()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """End the thread; what was not flushed may be missing."""
        self._blocks.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (pieces := self._blocks.get()) is not None:
            try:
                if self._error is None:
                    self._write(pieces)
                    if not pieces or self._since_sync >= _SYNC:
                        os.fdatasync(self._descriptor)
                        self._since_sync = 0
            except OSError as error:
                self._error = error
            finally:
                self._blocks.task_done()

    def _write(self, pieces: list[bytes | memoryview]) -> None:
        if pieces:
            self._since_sync += _write_all(self._descriptor, pieces)


def _write_all(descriptor: int, pieces: list[bytes | memoryview]) -> int:
    size = sum(map(len, pieces))
    written = os.writev(descriptor, pieces)
    if written < size:
        # As on a disk that is almost full: the rest says why.
        rest = memoryview(b"".join(pieces))[written:]
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    return size

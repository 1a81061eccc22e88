"""The process that makes records of blocks of lines: `python -m miles_data.line_worker CONNECTION FILE MEMORY`.

The three are open descriptors that the parent hands on. Records' lines go into the memory that both see, those of a
block into the next slot; what does not fit, and all else, goes through the connection.
"""

import sys
from mmap import mmap
from multiprocessing.connection import Connection
from typing import Final

from miles_data.findings import DataError
from miles_data.line_blocks import BLOCK, convert_block, read_block
from miles_data.rules import Rules

SLOTS: Final = 12  # blocks that a process has at a time: some wait while one is in work and one is being written
SLOT: Final = 2 * BLOCK  # bytes


def serve(connection: Connection, descriptor: int, memory: mmap) -> None:
    """Answer each block with what became of its lines, until the parent has gone."""
    try:
        rules, lengths_only = connection.recv()
        slot = 0
        while True:
            _answer(connection, memory, slot, read_block(descriptor, connection.recv()), rules, lengths_only)
            slot = (slot + 1) % SLOTS
    except (EOFError, ConnectionError):
        return
    except (DataError, OSError) as error:
        connection.send((error, 0))


def _answer(connection: Connection, memory: mmap, slot: int, data: bytes, rules: Rules, lengths_only: bool) -> None:
    found, pieces = convert_block(data, rules, lengths_only)
    length = sum(map(len, pieces))
    if length <= SLOT:
        start = slot * SLOT
        for piece in pieces:
            memory[start : (start := start + len(piece))] = piece
    connection.send((found, length))
    if length > SLOT:
        connection.send_bytes(b"".join(pieces))


if __name__ == "__main__":
    theirs, file, shared = map(int, sys.argv[1:])
    serve(Connection(theirs), file, mmap(shared, 0))

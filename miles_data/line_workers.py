"""Processes that make records of the blocks of one large file, while this one looks for duplicates and writes.

Lines come back in memory that both processes see, since copying them through a pipe would cost what is won.
"""

import io
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from mmap import mmap
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path

from miles_data.findings import DataError, Finding
from miles_data.input_file import BYTE_ORDER_MARK
from miles_data.json_lines import item_of_line
from miles_data.line_blocks import (
    BLOCK,
    Block,
    BlockBroken,
    BlockLine,
    BlockRecord,
    blocks_of,
    convert_block,
    read_block,
)
from miles_data.records import Outcome, Record, outcome_of
from miles_data.rows import Broken, Meter, RowAt, Skipped
from miles_data.rules import Rules

_SLOTS = 6  # blocks that a process has at a time: one in work, one that is being written
_SLOT = 2 * BLOCK  # bytes; lines that need more go through the pipe


class LineWorker:
    """A process that converts blocks of a file, at most two at a time, in the order they are given."""

    def __init__(self, descriptor: int) -> None:
        memory = os.memfd_create("lines")
        os.ftruncate(memory, _SLOTS * _SLOT)
        self._memory = memoryview(mmap(memory, 0))
        self._connection, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        assert self._process.pid is not None
        for shared in (descriptor, memory):
            send_handle(self._connection, shared, self._process.pid)
        os.close(memory)
        self._slot = 0

    def set_rules(self, rules: Rules, lengths_only: bool) -> None:
        """Once, before the first block."""
        self._send((rules, lengths_only))

    def give(self, block: Block) -> None:
        self._send(block)

    def take(self) -> tuple[list[BlockLine], memoryview]:
        """Of the oldest block that was given; the memory is written again after the next but one is given."""
        slot, self._slot = self._slot, (self._slot + 1) % _SLOTS
        try:
            found, length = self._connection.recv()
            if isinstance(found, DataError | OSError):
                raise found
            if length > _SLOT:
                return found, memoryview(self._connection.recv_bytes())
        except (EOFError, ConnectionError) as error:
            raise self._died() from error
        return found, self._memory[slot * _SLOT : slot * _SLOT + length]

    def close(self) -> None:
        self._connection.close()
        self._process.terminate()
        self._process.join()

    def _send(self, message: object) -> None:
        try:
            self._connection.send(message)
        except ConnectionError as error:
            raise self._died() from error

    def _died(self) -> DataError:
        self._process.join()
        return DataError(f"a process of the conversion ended too early (exit code {self._process.exitcode})")


def _serve(connection: Connection) -> None:
    # Ctrl-C reaches every process of the terminal; the one that was started by a person ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        descriptor, shared = recv_handle(connection), recv_handle(connection)
        memory = mmap(shared, 0)
        rules, lengths_only = connection.recv()
        slot = 0
        while True:
            _answer(connection, memory, slot, read_block(descriptor, connection.recv()), rules, lengths_only)
            slot = (slot + 1) % _SLOTS
    except (EOFError, ConnectionError):
        return
    except (DataError, OSError) as error:
        connection.send((error, 0))


def _answer(connection: Connection, memory: mmap, slot: int, data: bytes, rules: Rules, lengths_only: bool) -> None:
    found, pieces = convert_block(data, rules, lengths_only)
    length = sum(map(len, pieces))
    if length <= _SLOT:
        start = slot * _SLOT
        for piece in pieces:
            memory[start : (start := start + len(piece))] = piece
    connection.send((found, length))
    if length > _SLOT:
        connection.send_bytes(b"".join(pieces))


def in_blocks(
    path: Path, meter: Meter, rules: Rules, processes: int, lengths_only: bool, flush: Callable[[], None]
) -> Generator[Outcome]:
    """What becomes of each line of a file, in its order. The lines of a block are gone after the next `flush`."""
    with ExitStack() as stack:
        file = stack.enter_context(path.open("rb"))
        descriptor = file.fileno()
        workers: list[LineWorker] = []
        for _ in range(processes):
            workers.append(LineWorker(descriptor))
            stack.callback(workers[-1].close)
        blocks = blocks_of(descriptor, os.fstat(descriptor).st_size)
        number = 1
        # Which field names the tasks is decided by the first row that has one, for all rows alike.
        for block in blocks:
            for line in io.BytesIO(read_block(descriptor, block)):
                text = line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line
                yield outcome_of(item_of_line(text, f"line {number}"), rules)
                number += 1
            meter.before = block.end
            if rules.id_key is not None:
                break
        for worker in workers:
            worker.set_rules(rules, lengths_only)
        for block, found, lines in _converted(workers, blocks):
            yield from _outcomes(block, found, lines, descriptor, number)
            number += len(found)
            meter.before = block.end
            flush()


def _converted(
    workers: list[LineWorker], blocks: Iterator[Block]
) -> Iterator[tuple[Block, list[BlockLine], memoryview]]:
    """Each block with what was made of it, in order. Its memory is used again once the next one is asked for."""
    waiting: deque[tuple[Block, LineWorker]] = deque()
    for _ in range(_SLOTS):
        for worker, block in zip(workers, blocks, strict=False):
            worker.give(block)
            waiting.append((block, worker))
    while waiting:
        block, worker = waiting.popleft()
        yield block, *worker.take()
        if (following := next(blocks, None)) is not None:
            worker.give(following)
            waiting.append((following, worker))


def _outcomes(
    block: Block, found: list[BlockLine], lines: memoryview, descriptor: int, number: int
) -> Iterator[Outcome]:
    start, used = block.start, 0
    for count, (size, what) in enumerate(found, number):
        row = RowAt(count, descriptor, start, size)
        if isinstance(what, BlockRecord):
            yield Record(what.instance_id, what.prompt, (lines[used : used + what.length],), row)
            used += what.length
        elif isinstance(what, BlockBroken):
            yield Broken(Finding(row.place, what.rule, what.text), row.text)
        else:
            yield Skipped(row.place, what)
        start += size

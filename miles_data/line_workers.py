"""Processes that make records of the blocks of one large file, while this one looks for duplicates and writes.

Lines come back in memory that both processes see, since copying them through a pipe would cost what is won.
"""

import io
import multiprocessing
import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from mmap import mmap
from pathlib import Path

from miles_data.findings import DataError, Finding
from miles_data.input_file import BYTE_ORDER_MARK
from miles_data.json_lines import item_of_line
from miles_data.line_blocks import (
    Block,
    BlockBroken,
    BlockLines,
    blocks_of,
    read_block,
)
from miles_data.line_worker import SLOT, SLOTS
from miles_data.records import Outcome, Record, outcome_of
from miles_data.rows import Broken, Meter, RowAt, Skipped
from miles_data.rules import Rules


class LineWorker:
    """A process that converts blocks of a file, at most `SLOTS` at a time, in the order they are given."""

    def __init__(self, descriptor: int) -> None:
        shared = os.memfd_create("lines")
        try:
            os.ftruncate(shared, SLOTS * SLOT)
            self._memory = memoryview(mmap(shared, 0))
            self._connection, theirs = multiprocessing.Pipe()
            with theirs:
                handles = (theirs.fileno(), descriptor, shared)
                # A program of its own: a multiprocessing.Process would run the caller's main module once more. And in a
                # session of its own: Ctrl-C is for the process that a person started, and that one ends the others.
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "miles_data.line_worker", *map(str, handles)],
                    pass_fds=handles,
                    stdin=subprocess.DEVNULL,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                    start_new_session=True,
                )
        finally:
            os.close(shared)
        self._slot = 0

    def set_rules(self, rules: Rules, lengths_only: bool) -> None:
        """Once, before the first block."""
        self._send((rules, lengths_only))

    def give(self, block: Block) -> None:
        self._send(block)

    def take(self) -> tuple[BlockLines, memoryview]:
        """Of the oldest block that was given; its memory is used again for the block that is given `SLOTS` later."""
        slot, self._slot = self._slot, (self._slot + 1) % SLOTS
        try:
            found, length = self._connection.recv()
            if isinstance(found, DataError | OSError):
                raise found
            if length > SLOT:
                return found, memoryview(self._connection.recv_bytes())
        except (EOFError, ConnectionError) as error:
            raise self._died() from error
        return found, self._memory[slot * SLOT : slot * SLOT + length]

    def close(self) -> None:
        self._connection.close()
        self._process.terminate()
        self._process.wait()

    def _send(self, message: object) -> None:
        try:
            self._connection.send(message)
        except ConnectionError as error:
            raise self._died() from error

    def _died(self) -> DataError:
        code = self._process.wait()
        return DataError(f"a process of the conversion ended too early (exit code {code})")


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
            number += len(found.sizes)
            meter.before = block.end
            flush()


def _converted(workers: list[LineWorker], blocks: Iterator[Block]) -> Iterator[tuple[Block, BlockLines, memoryview]]:
    """Each block with what was made of it, in order. Its memory is used again as soon as the next one is asked for."""
    waiting: deque[tuple[Block, LineWorker]] = deque()
    for _ in range(SLOTS):
        for worker, block in zip(workers, blocks, strict=False):
            worker.give(block)
            waiting.append((block, worker))
    while waiting:
        block, worker = waiting.popleft()
        yield block, *worker.take()
        if (following := next(blocks, None)) is not None:
            worker.give(following)
            waiting.append((following, worker))


def _outcomes(block: Block, found: BlockLines, lines: memoryview, descriptor: int, number: int) -> Iterator[Outcome]:
    start, used = block.start, 0
    for count, (size, what) in enumerate(zip(found.sizes, found.outcomes, strict=True), number):
        row = RowAt(count, descriptor, start, size)
        if isinstance(what, str):
            yield Skipped(row.place, what)
        elif isinstance(what, BlockBroken):
            yield Broken(Finding(row.place, what.rule, what.text), row.text)
        else:
            instance_id, prompt, length = what
            yield Record(instance_id, prompt, (lines[used : used + length],), row)
            used += length
        start += size

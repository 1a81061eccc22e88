"""A file of JSON lines in blocks of whole lines, and what becomes of the lines of one block."""

import io
import os
from collections.abc import Iterator
from typing import NamedTuple

from miles_data.findings import DataError
from miles_data.json_lines import OPENING_BRACE, item_of_line
from miles_data.prompt_lengths import characters
from miles_data.records import Record, outcome_of
from miles_data.rows import Broken, JsonObject, Skipped
from miles_data.rules import Rules

BLOCK = 1 << 20
_PROBE = 1 << 16  # bytes read at a time to find where a line ends


class Block(NamedTuple):
    """Bytes of the file from `start` up to `end`, which is behind a line feed or the end of the file."""

    start: int
    end: int


class BlockBroken(NamedTuple):
    """Why a line is no record: the broken rule, and a sentence."""

    rule: str
    text: str


# instance_id, prompt, and how long its line is, which lies behind those of the records before it. A plain tuple: with
# names it would take twice as long on its way between processes.
BlockRecord = tuple[str, str | list[JsonObject] | int, int]


class BlockLines(NamedTuple):
    """Of the lines of a block, in order: their bytes, and what became of them; a text is why one was left out."""

    sizes: list[int]
    outcomes: list[BlockRecord | BlockBroken | str]


def blocks_of(descriptor: int, size: int) -> Iterator[Block]:
    """The first `size` bytes of a file, of which a block has `BLOCK` or, where a line goes on, more. Raises OSError."""
    start = 0
    while start < size:
        end = start + BLOCK
        while end < size:
            found = os.pread(descriptor, _PROBE, end - 1).find(b"\n")
            if found >= 0:
                end += found
                break
            end += _PROBE
        yield Block(start, min(end, size))
        start = end


def read_block(descriptor: int, block: Block) -> bytes:
    """Raises DataError where the file has become shorter, and OSError."""
    pieces: list[bytes] = []
    start = block.start
    while start < block.end:
        piece = os.pread(descriptor, block.end - start, start)
        if not piece:
            raise DataError(f"the input became shorter while it was read: it ends at byte {start}, not {block.end}")
        pieces.append(piece)
        start += len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def convert_block(data: bytes, rules: Rules, lengths_only: bool) -> tuple[BlockLines, list[bytes | memoryview]]:
    """What becomes of the lines of a block that is not the file's first, and the pieces of its records' lines."""
    sizes: list[int] = []
    outcomes: list[BlockRecord | BlockBroken | str] = []
    pieces: list[bytes | memoryview] = []
    for line in _lines(data):
        sizes.append(len(line))
        match outcome_of(item_of_line(line, ""), rules):
            case Record() as record:
                prompt = record.prompt
                if lengths_only and not isinstance(prompt, int):
                    prompt = characters(prompt)
                pieces += record.line
                outcomes.append((record.instance_id, prompt, record.size))
            case Broken(finding):
                outcomes.append(BlockBroken(finding.rule, finding.text))
            case Skipped(_, reason):
                outcomes.append(reason)
    return BlockLines(sizes, outcomes), pieces


def _lines(data: bytes) -> Iterator[bytes | memoryview]:
    """The lines with their ends, where possible without a copy."""
    if b"\r" in data:
        yield from io.BytesIO(data)
        return
    view, start = memoryview(data), 0
    while start < len(data):
        end = data.find(b"\n", start) + 1 or len(data)
        yield view[start:end] if data[start] == OPENING_BRACE else data[start:end]
        start = end

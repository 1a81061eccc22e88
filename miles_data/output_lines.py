"""The lines of the file that is being written, found again by their instance_id."""

import os
from typing import BinaryIO, Literal, cast

from miles_data.background_writer import BackgroundWriter
from miles_data.findings import BadRow
from miles_data.json_text import dump, parse_numbers_exactly
from miles_data.rows import JsonObject

OnDuplicate = Literal["error", "first", "last"]
Added = Literal["added", "same", "kept first", "replaced"]
_COPY = 1 << 20


def same_content(one: bytes, other: bytes) -> bool:
    """Whether two lines hold the same JSON, whatever its spacing, escapes and order of keys."""
    return one == other or dump(parse_numbers_exactly(one), sort_keys=True) == dump(
        parse_numbers_exactly(other), sort_keys=True
    )


class OutputLines:
    """Appends lines to a new binary file. An instance_id costs its text and one offset, however long its line is.

    `replaced` holds the line that the last `add` made void; `end` counts bytes, those of void lines included. Close it
    before the file is closed.
    """

    def __init__(self, file: BinaryIO, on_duplicate: OnDuplicate) -> None:
        self._file, self._policy = file, on_duplicate
        self._writer = BackgroundWriter(file)
        self._offsets: dict[str, int] = {}
        self.end = 0
        self._void: list[int] = []
        self._reader = open(file.name, "rb")  # noqa: SIM115 - closed by close()
        self.replaced = b""

    def close(self) -> None:
        self._writer.close()
        self._reader.close()

    def __contains__(self, instance_id: str) -> bool:
        return instance_id in self._offsets

    def offset(self, instance_id: str) -> int:
        """Where the line of an instance_id starts, in bytes."""
        return self._offsets[instance_id]

    def flush(self) -> None:
        """Wait until no line that was added is needed any more: its memory may be used again."""
        self._writer.flush()

    def add(self, instance_id: str, *line: bytes | memoryview) -> Added:
        """Write a line, given in pieces, unless its instance_id is there.

        Raises BadRow where that is refused, and OSError.
        """
        if instance_id not in self._offsets:
            self._append(instance_id, line)
            return "added"
        offset = self._offsets[instance_id]
        self._writer.flush()
        self._reader.seek(offset)
        old = self._reader.readline()
        new = b"".join(line)
        if same_content(old, new):
            return "same"
        if self._policy == "error":
            what = f"{instance_id!r} came before with another content ({_difference(old, new)})"
            raise BadRow("duplicate instance_id", f"{what}; --on-duplicate first or last keeps one")
        if self._policy == "first":
            return "kept first"
        self._void.append(offset)
        self.replaced = old
        self._append(instance_id, line)
        return "replaced"

    def _append(self, instance_id: str, line: tuple[bytes | memoryview, ...]) -> None:
        self._offsets[instance_id] = self.end
        for piece in line:
            self._writer.write(piece)
            self.end += len(piece)

    def finish(self) -> None:
        """Write what waits, and close the gaps of replaced lines, within the file itself."""
        self._writer.flush()
        if not self._void:
            return
        # Offsets were voided in the order of the newer lines, not of their own places.
        self._void.sort()
        write_at = self._void[0]
        for number, start in enumerate(self._void):
            self._reader.seek(start)
            read_at = start + len(self._reader.readline())
            until = self._void[number + 1] if number + 1 < len(self._void) else self.end
            write_at = self._move(read_at, until, write_at)
        self._file.truncate(write_at)

    def _move(self, start: int, until: int, to: int) -> int:
        descriptor = self._file.fileno()
        while start < until:
            data = os.pread(self._reader.fileno(), min(_COPY, until - start), start)
            start += len(data)
            while data:
                count = os.pwrite(descriptor, data, to)
                data, to = data[count:], to + count
        return to


def _difference(one: bytes, other: bytes) -> str:
    first, second = parse_numbers_exactly(one), parse_numbers_exactly(other)
    if dump(first.get("prompt")) != dump(second.get("prompt")):
        return "prompt"
    old, new = (cast(JsonObject, record["metadata"]) for record in (first, second))
    names = [name for name in {**old, **new} if (name in old) != (name in new) or dump(old[name]) != dump(new[name])]
    return ", ".join(names[:5]) or "content"

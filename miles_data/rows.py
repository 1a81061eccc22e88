"""What a source yields, in the order of the source: rows, broken rows, and what it leaves out on purpose."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Protocol

from miles_data.findings import Finding

JsonObject = dict[str, Any]


@dataclass(slots=True)
class Row:
    """One object of the source, untouched.

    Where the source is JSON, `text` is the object's own text, from its brace to the end of one line, and `fields` may
    hold a float for an integer beyond 64 bits and the last only of equal keys: good for looking, not for writing
    (`exact_fields` is).
    """

    place: str
    fields: JsonObject
    text: bytes | memoryview = b""


@dataclass(slots=True)
class RowAt:
    """A row of an open file whose text is read again when somebody asks for it."""

    number: int
    descriptor: int
    start: int
    size: int
    fields: JsonObject | None = None

    @property
    def place(self) -> str:
        return f"line {self.number}"

    @property
    def text(self) -> bytes:
        return os.pread(self.descriptor, self.size, self.start)


@dataclass(slots=True)
class Broken:
    """A row that breaks a rule. `text` is what stood there; where a source has none, `fields` may be known."""

    finding: Finding
    text: bytes = b""
    fields: JsonObject = field(default_factory=dict[str, Any])


@dataclass(slots=True)
class Skipped:
    """Something that is no row and no error. It is counted under `reason`, and named where `listed`."""

    place: str
    reason: str
    listed: bool = False


Item = Row | Broken | Skipped


@dataclass
class Meter:
    """How far a source is, in bytes of a file that is being read, or in rows; `total` 0 where nobody knows."""

    total: int = 0
    unit: str = "rows"
    file: BinaryIO | None = field(default=None, repr=False)
    before: int = 0  # bytes of what has been read to its end

    def done(self, rows: int) -> int:
        """In `unit`, after `rows` rows."""
        if self.unit == "rows":
            return rows
        return self.before + (self.file.tell() if self.file and not self.file.closed else 0)


class Source(Protocol):
    """Where rows come from. `rows` is called once; it never holds more than some rows in memory."""

    @property
    def meter(self) -> Meter: ...

    @property
    def split(self) -> str | None:
        """The split that all rows belong to, where the source has splits of its own."""
        ...

    @property
    def notes(self) -> list[str]:
        """What the reader of the report must know, one sentence each."""
        ...

    def rows(self) -> Iterator[Item]: ...


@dataclass
class PlainSource:
    """The part that sources without splits and notes have in common."""

    meter: Meter = field(default_factory=Meter, kw_only=True)
    split: str | None = field(default=None, kw_only=True)
    notes: list[str] = field(default_factory=list[str], kw_only=True)

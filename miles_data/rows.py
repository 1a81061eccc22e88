"""What a source yields, in the order of the source: rows, broken rows, and what it leaves out on purpose."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from miles_data.findings import Finding

JsonObject = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One object of the source, untouched."""

    place: str
    fields: JsonObject


@dataclass(frozen=True)
class Skipped:
    """Something that is no row and no error. It is counted under `reason`, and named where `listed`."""

    place: str
    reason: str
    listed: bool = False


class Source(Protocol):
    """Where rows come from. `rows` may be called once or again; it never holds more than one row in memory."""

    def rows(self) -> Iterator[Row | Finding | Skipped]: ...

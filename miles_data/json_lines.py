"""JSON lines in and out: one object a line, in UTF-8, ended by a line feed and nothing else."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time
from pathlib import Path
from typing import Any, NoReturn, cast

from miles_data.findings import BadRow, Finding
from miles_data.rows import JsonObject, Row, Skipped

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def _refuse_constant(name: str) -> NoReturn:
    raise BadRow("not a JSON number", f"{name} is not valid JSON; use null or leave the field out")


def parse_line(line: bytes) -> JsonObject:
    """The object of one line. Raises BadRow for anything else: broken text or JSON, NaN, an array, a number."""
    try:
        value: object = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise BadRow("not UTF-8", f"byte {error.start} of the line: {error.reason}") from error
    except json.JSONDecodeError as error:
        raise BadRow("broken JSON", f"{error.msg} at character {error.pos + 1} of {len(error.doc)}") from error
    except ValueError as error:
        # Python refuses to read integers of more than 4300 digits.
        raise BadRow("broken JSON", str(error)) from error
    except RecursionError as error:
        raise BadRow("broken JSON", "nested too deeply") from error
    if not isinstance(value, dict):
        raise BadRow("not an object", f"the line holds {type(value).__name__} where an object is expected")
    return cast(JsonObject, value)


def _plain(value: object) -> str:
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    raise BadRow("not JSON", f"a value of type {type(value).__name__} has no JSON form")


def dump_line(record: JsonObject) -> bytes:
    """The record as one line with its line feed; dates become ISO 8601 text. Raises BadRow where JSON has no form."""
    try:
        text = json.dumps(record, ensure_ascii=False, allow_nan=False, default=_plain)
    except ValueError as error:
        raise BadRow("not a JSON number", f"{error}; use null or leave the field out") from error
    try:
        return text.encode("utf-8") + b"\n"
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        raise BadRow(
            "lone surrogate", f"\\u{code:04x} is half of a character and cannot be written as UTF-8"
        ) from error


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Lines counted from 1, without line end and byte-order mark. Only a line feed ends a line (not U+2028)."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if number == 1:
                line = line.removeprefix(_BYTE_ORDER_MARK)
            yield number, line.rstrip(b"\r\n")


@dataclass(frozen=True)
class JsonLines:
    """A .jsonl file as a source. Blank lines are left out and counted."""

    path: Path

    def rows(self) -> Iterator[Row | Finding | Skipped]:
        for number, line in numbered_lines(self.path):
            place = f"line {number}"
            if not line.strip():
                yield Skipped(place, "blank line")
                continue
            try:
                fields: dict[str, Any] = parse_line(line)
            except BadRow as bad:
                yield bad.at(place)
            else:
                yield Row(place, fields)

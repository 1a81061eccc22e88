"""A file of JSON lines as a source: one object a line, ended by a line feed and nothing else (not U+2028)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from miles_data.findings import BadRow
from miles_data.input_file import BYTE_ORDER_MARK, InputFile, open_input
from miles_data.json_text import one_line, parse_line
from miles_data.rows import Broken, Item, PlainSource, Row, Skipped

OPENING_BRACE = ord("{")


def numbered_lines(file: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Lines counted from 1, with their ends, without the byte-order mark of a file."""
    for number, line in enumerate(file, 1):
        yield number, line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line


@dataclass
class JsonLines(PlainSource):
    """Blank lines are left out and counted."""

    path: InputFile

    def rows(self) -> Iterator[Item]:
        with open_input(self.path, self.meter) as file:
            for number, line in numbered_lines(file):
                yield item_of_line(line, f"line {number}")


def item_of_line(line: bytes | memoryview, place: str) -> Item:
    """A row, a broken one, or a blank line. A memoryview begins with a brace and has no carriage return."""
    if isinstance(line, bytes) and (not line or line.isspace()):
        return Skipped(place, "blank line")
    try:
        fields = parse_line(line)
    except BadRow as bad:
        return Broken(bad.at(place), bytes(line))
    if isinstance(line, memoryview) or (line[0] == OPENING_BRACE and b"\r" not in line):
        return Row(place, fields, line)
    return Row(place, fields, one_line(line))

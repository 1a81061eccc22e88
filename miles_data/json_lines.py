"""A file of JSON lines as a source: one object a line, ended by a line feed and nothing else (not U+2028)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from miles_data.findings import BadRow
from miles_data.input_file import BYTE_ORDER_MARK, InputFile, open_input
from miles_data.json_text import one_line, parse_line
from miles_data.rows import Broken, Item, PlainSource, Row, Skipped

_BRACE = ord("{")


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
                place = f"line {number}"
                if not line or line.isspace():
                    yield Skipped(place, "blank line")
                    continue
                try:
                    fields = parse_line(line)
                    usual = line[0] == _BRACE and b"\r" not in line
                    yield Row(place, fields, line if usual else one_line(line))
                except BadRow as bad:
                    yield Broken(bad.at(place), line)

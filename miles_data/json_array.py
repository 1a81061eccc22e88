"""A .json file that holds one array: its items are taken from the text one by one, so that memory stays small."""

import codecs
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from miles_data.findings import BadRow, Finding
from miles_data.input_file import BYTE_ORDER_MARK, InputFile, open_input
from miles_data.json_text import one_line, parse_line
from miles_data.rows import Broken, Item, PlainSource, Row

_CHUNK = 1 << 20
_SPACE = " \t\r\n"


def starts_with_array(path: InputFile) -> bool:
    """Whether the first sign of the file is a square bracket."""
    with open_input(path) as file:
        return file.read(4096).removeprefix(BYTE_ORDER_MARK).lstrip()[:1] == b"["


class _Text:
    """The part of the file's text from the next item on."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        # Bytes that are no UTF-8 come back as they were when an item is encoded, and are found as such.
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("surrogateescape")
        self.text, self.start, self.ended = "", 0, False

    def more(self) -> None:
        """Read on, at least as much as is waiting: an item of any size is scanned a logarithmic number of times."""
        data = self._file.read(max(_CHUNK, len(self.text) - self.start))
        self.ended = not data
        self.text = self.text[self.start :] + self._decoder.decode(data, final=self.ended)
        self.start = 0

    def next_sign(self) -> str:
        """The next sign that is no space, which stays; empty at the end."""
        while True:
            while self.start < len(self.text) and self.text[self.start] in _SPACE:
                self.start += 1
            if self.start < len(self.text):
                return self.text[self.start]
            if self.ended:
                return ""
            self.more()


@dataclass
class JsonArray(PlainSource):
    """Items are counted from 1. A break of the array itself ends it and is a broken row."""

    path: InputFile

    def rows(self) -> Iterator[Item]:
        with open_input(self.path, self.meter) as file:
            text = _Text(file)
            text.next_sign()
            text.start += 1  # the bracket
            number, sign = 0, text.next_sign()
            while sign != "]":
                number += 1
                place = f"item {number}"
                try:
                    item = _take(text)
                except BadRow as bad:
                    yield Broken(bad.at(place), text.text[text.start :].encode("utf-8", "surrogateescape"))
                    return
                data = item.encode("utf-8", "surrogateescape")
                try:
                    yield Row(place, parse_line(data), one_line(data))
                except BadRow as bad:
                    yield Broken(bad.at(place), data)
                sign = text.next_sign()
                if sign == ",":
                    text.start += 1
                    text.next_sign()
                elif sign != "]":
                    what = f"{sign!r} where a comma or the end of the array is expected" if sign else "the file ends"
                    yield Broken(Finding(place, "broken JSON", f"after it: {what}"))
                    return
            text.start += 1
            if sign := text.next_sign():
                yield Broken(Finding("after the array", "broken JSON", f"{sign!r} where the file should end"))


def _take(text: _Text) -> str:
    """The text of the next item. Raises BadRow where no JSON begins here."""
    scan = json.JSONDecoder().raw_decode
    while True:
        try:
            _, end = scan(text.text, text.start)
            # A number or word at the very end may go on in what is not read yet.
            if end < len(text.text) or text.ended:
                item = text.text[text.start : end]
                text.start = end
                return item
        except json.JSONDecodeError as error:
            if text.ended:
                at = error.pos - text.start + 1
                raise BadRow("broken JSON", f"{error.msg} at character {at} of the item") from error
        except RecursionError as error:
            raise BadRow("nested too deeply", "deeper than JSON readers go") from error
        text.more()

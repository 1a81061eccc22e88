"""A .csv file as a source. Every cell stays the text that it is: no guessed numbers, dates or NaN."""

import csv
import io
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from miles_data.findings import DataError, Finding
from miles_data.input_file import InputFile, open_input
from miles_data.rows import Broken, Item, PlainSource, Row, Skipped


@dataclass
class CsvRows(PlainSource):
    """The first line names the columns. A row's place is the line that it starts on."""

    path: InputFile

    def rows(self) -> Iterator[Item]:
        csv.field_size_limit(sys.maxsize)
        with open_input(self.path, self.meter) as file:
            # Bytes that are no UTF-8 become lone surrogates, which the rules refuse in their row.
            text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
            reader = csv.reader(text, strict=True)
            columns = self._columns(reader)
            while True:
                place = f"line {reader.line_num + 1}"
                try:
                    cells = next(reader, None)
                except csv.Error as error:
                    yield Broken(Finding(place, "broken CSV", str(error)))
                    continue
                if cells is None:
                    return
                if not cells:
                    yield Skipped(place, "blank line")
                elif len(cells) != len(columns):
                    what = f"{len(cells)} cells under {len(columns)} columns"
                    yield Broken(Finding(place, "broken CSV", what), ",".join(cells).encode("utf-8", "surrogateescape"))
                else:
                    yield Row(place, dict(zip(columns, cells, strict=True)))

    def _columns(self, reader: Iterator[list[str]]) -> list[str]:
        try:
            columns = next(reader, list[str]())
        except csv.Error as error:
            raise DataError(f"the first line of {self.path} names no columns: {error}") from error
        twice = {name for name in columns if columns.count(name) > 1}
        if twice:
            raise DataError(f"{self.path} has more than one column named {', '.join(sorted(twice))}; rename them")
        return columns

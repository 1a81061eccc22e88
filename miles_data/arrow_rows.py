"""Rows of Arrow data: .parquet files and what the `datasets` library hands out.

Timestamps come out as Python's datetime, or the subclass of it that holds nanoseconds, and are written as ISO 8601.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from miles_data.findings import DataError
from miles_data.optional_package import optional_package
from miles_data.rows import Item, JsonObject, PlainSource, Row

# Rows held as Python objects at a time: few where they are large.
_BATCH_BYTES = 1 << 20
_MOST_ROWS = 1000


def objects(table: Any) -> list[JsonObject]:
    """The rows of a RecordBatch or Table. Raises DataError for values beyond Python's types."""
    pyarrow = optional_package("pyarrow", "pyarrow", "reading Arrow data")
    try:
        return table.to_pylist()
    except (pyarrow.ArrowException, ValueError, OverflowError) as error:
        raise DataError(f"a value of the Arrow data has no form in Python: {error}") from error


def batch_rows(average_bytes: float) -> int:
    """How many rows to take at a time, given what one has on average."""
    return max(1, min(_MOST_ROWS, int(_BATCH_BYTES / max(average_bytes, 1))))


@dataclass
class ParquetRows(PlainSource):
    """Rows are counted from 1."""

    path: Path

    def rows(self) -> Iterator[Item]:
        pyarrow = optional_package("pyarrow", "pyarrow", f"reading {self.path}")
        parquet = optional_package("pyarrow.parquet", "pyarrow", f"reading {self.path}")
        try:
            # Without buffering the whole column of a row group would be read at once.
            with parquet.ParquetFile(self.path, buffer_size=1 << 16, pre_buffer=False) as file:
                repeated = {name for name in file.schema_arrow.names if file.schema_arrow.names.count(name) > 1}
                if repeated:
                    raise DataError(f"{self.path} has more than one column named {', '.join(sorted(repeated))}")
                sizes = [file.metadata.row_group(group).total_byte_size for group in range(file.num_row_groups)]
                count = max(file.metadata.num_rows, 1)
                share = self.path.stat().st_size / count
                batch = batch_rows(sum(sizes) / count)
                number = 0
                for table in file.iter_batches(batch_size=batch, use_threads=False):
                    for fields in objects(table):
                        number += 1
                        yield Row(f"row {number}", fields)
                    self.meter.before += int(table.num_rows * share)
        except pyarrow.ArrowException as error:
            raise DataError(f"{self.path} cannot be read as parquet: {error}") from error

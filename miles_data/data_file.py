"""From one data file to the reader of it."""

from pathlib import Path
from typing import Final

from miles_data.arrow_rows import ParquetRows
from miles_data.csv_rows import CsvRows
from miles_data.findings import DataError
from miles_data.input_file import COMPRESSED, InputFile, bare_suffix
from miles_data.json_array import JsonArray, starts_with_array
from miles_data.json_lines import JsonLines
from miles_data.rows import Meter

_TEXT: Final = (".jsonl", ".json", ".csv")
DATA_FILES: Final = (".parquet", *(text + packed for text in _TEXT for packed in ("", *COMPRESSED)))

DataFile = JsonLines | JsonArray | CsvRows | ParquetRows


def open_data_file(path: InputFile) -> DataFile:
    """The reader for a file. Raises DataError where no reader knows its ending, and OSError."""
    meter = Meter(path.stat().st_size if isinstance(path, Path) else 0, "bytes")
    if isinstance(path, Path) and path.suffix == ".parquet":
        return ParquetRows(path, meter=meter)
    match bare_suffix(path):
        case ".jsonl":
            return JsonLines(path, meter=meter)
        case ".json":
            return JsonArray(path, meter=meter) if starts_with_array(path) else JsonLines(path, meter=meter)
        case ".csv":
            return CsvRows(path, meter=meter)
        case ending:
            raise DataError(f"the input {path} has an ending that no reader knows: {ending or 'none'}")

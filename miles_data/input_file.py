"""Bytes of an input file, unpacked where it is compressed; a cut or damaged one is an error, never a short result."""

import gzip
import io
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from miles_data.findings import DataError
from miles_data.optional_package import optional_package
from miles_data.rows import Meter

COMPRESSED = (".gz", ".zst")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BUFFER = 1 << 20


@contextmanager
def open_input(path: Path, meter: Meter | None = None) -> Generator[BinaryIO]:
    """Open for reading; `meter` follows how far the file, as it lies on the disk, is read.

    Raises DataError where the compressed data is damaged or ends too early, and OSError.
    """
    damaged: tuple[type[Exception], ...] = (EOFError, zlib.error, gzip.BadGzipFile)
    zstd: Any = None
    if path.suffix == ".zst":
        zstd = optional_package("backports.zstd", "backports.zstd", f"reading {path}")
        damaged += (zstd.ZstdError,)
    with path.open("rb", buffering=_BUFFER) as file:
        if meter is not None and file.seekable():
            meter.file = file
        try:
            if path.suffix == ".gz":
                yield io.BufferedReader(cast(io.RawIOBase, gzip.GzipFile(fileobj=file, mode="rb")), _BUFFER)
            elif zstd:
                yield io.BufferedReader(zstd.ZstdFile(file), _BUFFER)
            else:
                yield file
        except damaged as error:
            raise DataError(f"{path} is damaged or cut off: {error}") from error
        finally:
            if meter is not None and meter.file is file:
                meter.before += file.tell()
                meter.file = None


def bare_suffix(path: Path) -> str:
    """The ending without that of the compression: `.jsonl` of `a.jsonl.gz`."""
    return Path(path.stem).suffix if path.suffix in COMPRESSED else path.suffix

"""Bytes of an input file, unpacked where it is compressed; a cut or damaged one is an error, never a short result."""

import gzip
import io
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

from miles_data.findings import DataError
from miles_data.optional_package import optional_package
from miles_data.rows import Meter

COMPRESSED = (".gz", ".zst")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BUFFER = 1 << 20


@dataclass(frozen=True)
class RemoteFile:
    """A file that fsspec opens, as `hf://datasets/...` of the Hugging Face hub."""

    url: str

    @property
    def name(self) -> str:
        return PurePosixPath(self.url).name

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.url).suffix

    @property
    def stem(self) -> str:
        return PurePosixPath(self.url).stem

    def open(self) -> BinaryIO:
        fsspec = optional_package("fsspec", "fsspec", f"reading {self.url}")
        return fsspec.open(self.url, "rb").open()


InputFile = Path | RemoteFile


@contextmanager
def open_input(path: InputFile, meter: Meter | None = None) -> Generator[BinaryIO]:
    """Open for reading; `meter` follows how far the file, as it lies on the disk, is read.

    Raises DataError where the compressed data is damaged or ends too early, and OSError.
    """
    damaged: tuple[type[Exception], ...] = (EOFError, zlib.error, gzip.BadGzipFile)
    zstd: Any = None
    if path.suffix == ".zst":
        zstd = optional_package("backports.zstd", "backports.zstd", f"reading {path}")
        damaged += (zstd.ZstdError,)
    with path.open("rb", buffering=_BUFFER) if isinstance(path, Path) else path.open() as file:
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


def bare_suffix(path: InputFile) -> str:
    """The ending without that of the compression: `.jsonl` of `a.jsonl.gz`."""
    return Path(path.stem).suffix if path.suffix in COMPRESSED else path.suffix

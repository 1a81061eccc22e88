"""Opens a dump as data: nothing in it is executed, and nothing is believed that the file's own size does not bear out.

PyTorch and NumPy are imported here only; the process that shows a report needs neither.
"""

from __future__ import annotations

import os
import pickle
import re
import shutil
import struct
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy
import torch
from numpy import dtypes
from torch.serialization import safe_globals

from disk.regular_file import open_regular
from progress.dump_summary import CUT_OFF, EMPTY
from progress.unreadable import Unreadable

_FORBIDDEN = re.compile(r"GLOBAL ([\w.<>]+)")
_NUMPY = ("_reconstruct", "scalar")
_DTYPES = ("Bool", "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64", "Float16", "Float32",
           "Float64")  # fmt: skip

# Besides what weights_only lets through: numbers and arrays of NumPy, as rewards and routed experts come in.
ALLOWED: list[Any] = [
    numpy.dtype,
    numpy.ndarray,
    *(getattr(dtypes, f"{name}DType") for name in _DTYPES),
    *(
        (getattr(numpy._core.multiarray, name), f"numpy.{core}.multiarray.{name}")  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType]
        for name in _NUMPY
        for core in ("core", "_core")
    ),
]

# What the readers of archives and pickles raise for bytes that no writer of them makes.
_BROKEN_ARCHIVE = (
    *(zipfile.BadZipFile, struct.error, NotImplementedError, RuntimeError),
    *(EOFError, ValueError, OverflowError, KeyError, IndexError),
)
_BROKEN_PICKLE = (
    *(pickle.UnpicklingError, struct.error, RuntimeError, AssertionError, EOFError, MemoryError, RecursionError),
    *(ValueError, OverflowError, KeyError, IndexError, TypeError, AttributeError),
)


def load_dump(path: str) -> object:
    """What `torch.save` wrote to `path`, tensors on the CPU. Raises Unreadable.

    The file is copied to memory first: the trainer may replace it while it is read, and pages that vanish from a
    mapped file end the process.
    """
    with _copy_in_memory(path) as copy:
        _require_plain_archive(copy)
        try:
            # Mapped, so that a tensor cannot claim more bytes than the file has.
            with safe_globals(ALLOWED):
                return torch.load(f"/proc/self/fd/{copy.fileno()}", map_location="cpu", mmap=True, weights_only=True)
        except _BROKEN_PICKLE as error:
            raise Unreadable(_reason(error)) from None


@contextmanager
def _copy_in_memory(path: str) -> Generator[BinaryIO]:
    try:
        opened = open_regular(Path(path))
    except OSError as error:
        raise Unreadable(error.strerror or str(error), lasting=False) from None
    with opened as file, open(os.memfd_create("dump", os.MFD_CLOEXEC), "w+b") as copy:
        try:
            shutil.copyfileobj(file, copy, 1 << 20)
            copy.flush()
        except OSError as error:
            raise Unreadable(error.strerror or str(error), lasting=False) from None
        yield copy


def _require_plain_archive(copy: BinaryIO) -> None:
    """What torch.save writes is never compressed: entries that promise more than the file holds are a bomb."""
    size = copy.seek(0, os.SEEK_END)
    copy.seek(0)
    start = copy.read(4)
    if not size:
        raise Unreadable(EMPTY)
    if start != b"PK\x03\x04":
        raise Unreadable(f"it is no file of torch.save ({size:,} bytes that begin with {start!r})")
    try:
        with zipfile.ZipFile(copy) as archive:
            entries = archive.infolist()
    except zipfile.BadZipFile:
        raise Unreadable(f"{CUT_OFF}: {size:,} bytes without the archive's end") from None
    except _BROKEN_ARCHIVE as error:
        raise Unreadable(_reason(error)) from None
    promised = sum(entry.file_size for entry in entries)
    if promised > size or any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
        raise Unreadable(f"it would unpack to {promised:,} bytes from {size:,}, which torch.save never does")


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split())
    forbidden = _FORBIDDEN.search(text)
    if forbidden is not None:
        return f"it asks for {forbidden[1]}, which is code and not data; nothing of it was executed"
    return f"{type(error).__name__}: {text[:160]}" if text else type(error).__name__

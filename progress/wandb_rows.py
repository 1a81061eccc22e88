"""The steps that a W&B run has: of an offline run from its files, of an online one from the server.

W&B's package reads its files in a binary of its own (wandb sync); from Python it brings the records' format, and the
frame around them is the log of LevelDB: https://github.com/google/leveldb/blob/main/doc/log_format.md
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import orjson

from local_engine.wandb_log import has_key
from progress.launch import Launch
from trajectory.outcome import finite_number

STEP_KEYS = ("rollout/step", "train/step", "_step")  # what the local engine and Miles log a step under, else W&B's own
_BLOCK = 32 * 2**10
_HEADER = struct.Struct("<IHB")  # checksum, length, kind
_START = b":W&B"
_FULL, _FIRST, _LAST = 1, 2, 4
_LARGEST = 2**30  # bytes of one run file
_MOST_FILES = 1_000


class WandbUnreadable(Exception):
    """The run's rows cannot be read; the message says why and the way out."""


@dataclass(frozen=True)
class WandbRows:
    """`steps`: rollout ids that rows were logged for. `name` for a sentence."""

    name: str
    steps: frozenset[int]


def wandb_rows(run: str, launch: Launch) -> WandbRows:
    """Rows of an offline run folder, of a folder that holds several, or of ENTITY/PROJECT/RUN on the server.

    A bare run id is completed by the project and team of the launch file. Raises WandbUnreadable.
    """
    path = Path(run)
    if os.path.exists(path):
        return _offline(path)
    if "/" in run and (path.is_absolute() or run.startswith(".")):
        raise WandbUnreadable(f"--wandb {run}: there is no such folder")
    return _online(run, launch)


def _offline(path: Path) -> WandbRows:
    files = [path] if os.path.isfile(path) else sorted(path.rglob("*.wandb"))[:_MOST_FILES]
    if not files:
        raise WandbUnreadable(f"--wandb {path}: no run-*.wandb below it; name an offline-run-... folder")
    rows = [row for file in files for row in _rows_of(file)]
    return WandbRows(f"{path} ({len(rows)} rows)", _steps(rows))


def _rows_of(file: Path) -> list[dict[str, Any]]:
    try:
        from google.protobuf.message import DecodeError

        records: Any = import_module("wandb.proto.wandb_internal_pb2")
    except ImportError as error:
        raise WandbUnreadable(
            f"--wandb needs the package wandb ({error}); install the dependency group report"
        ) from None
    try:
        if file.stat().st_size > _LARGEST or not file.is_file():
            raise WandbUnreadable(f"--wandb: {file} is no run file, or larger than {_LARGEST:,} bytes")
        data = file.read_bytes()
    except OSError as error:
        raise WandbUnreadable(f"--wandb: {file} cannot be read ({error.strerror})") from None
    if not data.startswith(_START):
        raise WandbUnreadable(f"--wandb: {file} is no W&B run file")
    rows: list[dict[str, Any]] = []
    for record in _records(data):
        message = records.Record()
        try:
            message.ParseFromString(record)
        except DecodeError:
            break  # torn by a kill: what follows is not aligned any more
        if message.WhichOneof("record_type") == "history":
            rows.append(_row(message.history))
    return rows


def _row(history: Any) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for item in history.item:
        try:
            row[item.key or "/".join(item.nested_key)] = orjson.loads(item.value_json)
        except orjson.JSONDecodeError:
            continue
    return row


def _records(data: bytes) -> Iterator[bytes]:
    """Whole records; a torn end is left out."""
    place, record = 7, b""  # behind the file's own header
    while place + _HEADER.size <= len(data):
        left = _BLOCK - place % _BLOCK
        if left < _HEADER.size:
            place += left
            continue
        _, length, kind = _HEADER.unpack_from(data, place)
        place += _HEADER.size
        part = data[place : place + length]
        if len(part) < length or not _FULL <= kind <= _LAST:
            return
        place += length
        record = part if kind in (_FULL, _FIRST) else record + part
        if kind in (_FULL, _LAST):
            yield record


def _online(run: str, launch: Launch) -> WandbRows:
    try:
        import wandb
        from wandb.errors import Error
    except ImportError as error:
        raise WandbUnreadable(
            f"--wandb needs the package wandb ({error}); install the dependency group report"
        ) from None
    parts = run.split("/")
    before = [launch.wandb_team, launch.wandb_project][len(parts) - 1 :] if len(parts) < 3 else []
    if len(parts) > 3 or not all(parts) or (len(parts) == 1 and launch.wandb_project is None):
        raise WandbUnreadable(f"--wandb {run}: there is no such folder; name an online run as ENTITY/PROJECT/RUN")
    name = "/".join([part for part in before if part] + parts)
    if not has_key(wandb.setup().settings.base_url):
        raise WandbUnreadable(
            f"--wandb {run}: there is no such folder, and without a key W&B cannot be asked; set WANDB_API_KEY, run "
            "`wandb login`, or name an offline run folder"
        )
    try:
        found: Any = wandb.Api(timeout=60).run(name)
        rows = [dict(row) for row in found.scan_history(keys=[STEP_KEYS[0]])]
        rows = rows or [dict(row) for row in found.scan_history(keys=[STEP_KEYS[-1]])]
    except (Error, OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise WandbUnreadable(f"--wandb {name} cannot be read: {type(error).__name__}: {reason}") from None
    return WandbRows(f"{name} ({len(rows)} rows)", _steps(rows))


def _steps(rows: list[dict[str, Any]]) -> frozenset[int]:
    key = next((name for name in STEP_KEYS if any(name in row for row in rows)), None)
    numbers = (finite_number(row.get(key)) for row in rows) if key is not None else ()
    return frozenset(int(number) for number in numbers if number is not None and number == int(number))

"""Outcome files counted as they grow: what became of the trajectories of every rollout, discarded ones included."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import orjson

from disk.regular_file import open_regular
from progress.dump_summary import status_name
from progress.run_folder import FileStamp
from trajectory.outcome import finite_number

BLOCK = 2**20
LONGEST_LINE = 16 * BLOCK  # what is longer is no line of ours
_MARK = 256  # bytes before the end of what was read, kept as a digest: a file that grew still has them
_LARGEST_ID = 10**9
_EARLIEST, _LATEST = 1e9, 1e10  # Unix times of a run; anything else is no time
_LONGEST = 30 * 86400.0  # seconds of a trajectory


@dataclass
class Tally:
    """Trajectories of one rollout in one file. Times are Unix seconds."""

    statuses: dict[str, int] = field(default_factory=dict[str, int])  # scored ones
    discards: dict[str, int] = field(default_factory=dict[str, int])
    began: float | None = None
    ended: float | None = None
    indices: list[int] = field(default_factory=list[int])  # of the trajectories, one a line
    groups: list[int] = field(default_factory=list[int])  # their groups, as they change from line to line

    @property
    def lines(self) -> int:
        return sum(self.statuses.values()) + sum(self.discards.values())


@dataclass
class LooseLine:
    """A trajectory of which nobody knew the rollout: fully asynchronous runs."""

    time: float | None
    status: str
    discard: bool


@dataclass
class FileTally:
    """One outcomes file up to `offset`; `mark` is the digest of the bytes before it."""

    inode: int
    offset: int = 0
    mark: str = ""
    steps: dict[str, Tally] = field(default_factory=dict[str, Tally])  # by rollout id, as JSON has it
    loose: list[LooseLine] = field(default_factory=list[LooseLine])
    evaluated_at: float | None = None  # end of the last trajectory of an evaluation
    torn: int = 0  # lines that are no JSON object


def read_on(stamp: FileStamp, known: FileTally | None) -> FileTally:
    """`known` and what the file holds beyond it; from the beginning where the file is another one. Raises OSError."""
    with open_regular(stamp.path) as file:
        tally = known
        if tally is None or tally.inode != stamp.inode or tally.offset < 0 or tally.mark != _mark(file, tally.offset):
            tally = FileTally(stamp.inode)
        file.seek(tally.offset)
        for line, end in _lines(file, tally.offset):
            _count(tally, line)
            tally.offset = end
        tally.mark = _mark(file, tally.offset)
    return tally


def _mark(file: Any, offset: int) -> str:
    start = max(0, offset - _MARK)
    file.seek(start)
    return hashlib.sha256(file.read(offset - start)).hexdigest()[:32]


def _lines(file: Any, offset: int) -> Iterator[tuple[bytes, int]]:
    """Whole lines and where they end. The last one counts without a line feed when it is a whole JSON object."""
    rest = b""
    skipping = False
    while block := cast(bytes, file.read(BLOCK)):
        *whole, rest = (rest + block).split(b"\n")
        for line in whole:
            offset += len(line) + 1
            yield (b"" if skipping else line), offset
            skipping = False
        if len(rest) > LONGEST_LINE:
            offset += len(rest)
            rest, skipping = b"", True
    if rest and not skipping and _object(rest) is not None:
        yield rest, offset + len(rest)


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        value: object = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return cast(dict[str, Any], value) if isinstance(value, dict) else None


def _count(tally: FileTally, raw: bytes) -> None:
    if not raw.strip():
        return
    line = _object(raw)
    if line is None:
        tally.torn += 1
        return
    time = finite_number(line.get("time"))
    time = time if time is not None and _EARLIEST <= time <= _LATEST else None
    if line.get("evaluation") is True:
        tally.evaluated_at = max((t for t in (tally.evaluated_at, time) if t is not None), default=None)
        return
    status = line.get("exit_status")
    name = status_name(status) if isinstance(status, str) and status else "unknown"
    discard = line.get("discard") is True
    rollout_id = line.get("rollout_id")
    if not isinstance(rollout_id, int) or isinstance(rollout_id, bool) or not 0 <= rollout_id < _LARGEST_ID:
        tally.loose.append(LooseLine(time, name, discard))
        return
    step = tally.steps.setdefault(str(rollout_id), Tally())
    counts = step.discards if discard else step.statuses
    counts[name] = counts.get(name, 0) + 1
    if time is not None:
        seconds = min(max(finite_number(line.get("seconds")) or 0.0, 0.0), _LONGEST)
        step.began = min(time - seconds, step.began if step.began is not None else time - seconds)
        step.ended = max(time, step.ended or time)
    group, index = _whole(line.get("group_index")), _whole(line.get("index"))
    if index is not None:
        step.indices.append(index)
    if group is not None and group not in step.groups[-1:]:
        step.groups.append(group)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**62 else None

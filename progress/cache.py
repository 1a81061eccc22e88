"""What earlier looks at a run have read: summaries by file, so that only what is new is opened again.

One JSON file beside the dumps, or in the user's cache folder where that cannot be written. It holds numbers, is
believed only as far as its types go, and may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

import orjson

from disk.atomic_file import atomic_file
from disk.regular_file import read_regular
from progress.dump_summary import SampleSummary, TrainSummary
from progress.json_record import NotThisRecord, decode
from progress.outcome_tally import FileTally
from progress.run_folder import FileStamp

NAME = ".verify_progress.json"
VERSION = 1  # of what the file holds; another one is read anew
_LARGEST = 512 * 2**20  # bytes; 3,000 rollouts with 64 ranks take a tenth of it


@dataclass
class Entry:
    """One dump as it was read: a summary, or the reason for having none."""

    size: int
    mtime_ns: int
    inode: int
    samples: SampleSummary | None = None
    train: TrainSummary | None = None
    reason: str | None = None
    replaced: bool = False  # another good dump of this name was seen before

    def is_of(self, stamp: FileStamp) -> bool:
        return (self.size, self.mtime_ns, self.inode) == (stamp.size, stamp.mtime_ns, stamp.inode)


@dataclass
class Cache:
    """`dumps` and `outcomes` by name relative to the traces folder."""

    path: Path
    dumps: dict[str, Entry] = field(default_factory=dict[str, Entry])
    outcomes: dict[str, FileTally] = field(default_factory=dict[str, FileTally])
    reward_key: str | None = None  # summaries were made with

    def save(self) -> None:
        """Write the file, whole or not at all. Where it cannot be written the next look takes longer, no more."""
        content = {
            "version": VERSION,
            "reward_key": self.reward_key,
            "dumps": {name: asdict(entry) for name, entry in self.dumps.items()},
            "outcomes": {name: asdict(tally) for name, tally in self.outcomes.items()},
        }
        with suppress(OSError), atomic_file(self.path) as file:
            file.write(orjson.dumps(content))


def open_cache(traces: Path, cache_dir: Path | None, reward_key: str | None) -> Cache:
    """The cache of these dumps; empty where there is none, or a damaged one, or one of another kind of summary."""
    cache = Cache(_place(traces, cache_dir), reward_key=reward_key)
    content = _content(cache.path)
    if content.get("version") != VERSION or content.get("reward_key") != reward_key:
        return cache
    _fill(cache.dumps, Entry, content.get("dumps"))
    _fill(cache.outcomes, FileTally, content.get("outcomes"))
    return cache


def _place(traces: Path, cache_dir: Path | None) -> Path:
    if cache_dir is None and os.access(traces, os.W_OK):
        return traces / NAME
    folder = cache_dir or Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "verify_progress")
    return folder / f"{hashlib.sha256(os.fsencode(traces.absolute())).hexdigest()[:32]}.json"


def _content(path: Path) -> dict[str, Any]:
    try:
        content: object = orjson.loads(read_regular(path, _LARGEST))
    except (OSError, orjson.JSONDecodeError):
        return {}
    return cast(dict[str, Any], content) if isinstance(content, dict) else {}


def _fill[T](kept: dict[str, T], kind: type[T], found: object) -> None:
    if not isinstance(found, dict):
        return
    for name, value in cast(dict[str, object], found).items():
        try:
            kept[name] = decode(kind, value)
        except NotThisRecord:
            continue

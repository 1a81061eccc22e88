"""One look at all files of a run: what is new is read, what is known comes from the cache."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from progress.cache import Cache, Entry, open_cache
from progress.dump_reader import DumpReader
from progress.dump_summary import SampleSummary, TrainSummary
from progress.launch import Launch, read_launch
from progress.outcome_tally import FileTally, read_on
from progress.run_folder import FileStamp, RunFolder, look
from progress.unreadable import Unreadable

NO_FILE = -1  # the inode of what is to be tried again
SAVE_EVERY = 20.0  # seconds; a first look at a large run takes long and may be interrupted

Report = Callable[[int, int], None]  # files read, of how many


@dataclass(frozen=True)
class BadFile:
    """A file that was skipped, and why. `written_at` is None where it is none whose age matters."""

    name: str
    rollout_id: int | None
    reason: str
    written_at: float | None = None


@dataclass
class Scan:
    """What the files of a run say, by rollout id."""

    folder: RunFolder
    launch: Launch
    rollouts: dict[int, SampleSummary] = field(default_factory=dict[int, SampleSummary])
    evaluations: dict[int, SampleSummary] = field(default_factory=dict[int, SampleSummary])
    training: dict[tuple[int, int], TrainSummary] = field(default_factory=dict[tuple[int, int], TrainSummary])
    replaced: set[int] = field(default_factory=set[int])  # rollouts of which an earlier look saw another dump
    outcomes: dict[str, FileTally] = field(default_factory=dict[str, FileTally])
    bad: list[BadFile] = field(default_factory=list[BadFile])


def scan(traces: Path, cache_dir: Path | None, report: Report | None = None) -> Scan:
    """Raises ReaderMissing where dumps cannot be opened on this machine."""
    launch = read_launch(traces)
    found = Scan(look(traces), launch)
    cache = open_cache(traces, cache_dir, launch.reward_key)
    before = (dict(cache.dumps), {name: tally.offset for name, tally in cache.outcomes.items()})
    if launch.problem is not None and launch.path is not None:
        found.bad.append(BadFile(launch.path.name, None, launch.problem))
    found.bad += [BadFile(entry.name, entry.rollout_id, entry.reason) for entry in found.folder.foreign]
    _read_outcomes(found, cache)
    _read_dumps(found, cache, report or (lambda read, of: None))
    if before != (cache.dumps, {name: tally.offset for name, tally in cache.outcomes.items()}):
        cache.save()
    return found


def _read_outcomes(found: Scan, cache: Cache) -> None:
    known, cache.outcomes = cache.outcomes, {}
    for stamp in found.folder.outcomes:
        try:
            tally = read_on(stamp, known.get(stamp.name))
        except OSError as error:
            found.bad.append(BadFile(stamp.name, None, error.strerror or str(error)))
            continue
        cache.outcomes[stamp.name] = found.outcomes[stamp.name] = tally


def _read_dumps(found: Scan, cache: Cache, report: Report) -> None:
    wanted = _wanted(found.folder)
    known, cache.dumps = cache.dumps, {}
    new = [name for name, (stamp, _) in wanted.items() if not (name in known and known[name].is_of(stamp))]
    # Entries stay until they are replaced: a look that is interrupted saves all that it had.
    cache.dumps = {name: known[name] for name in wanted if name in known}
    saved, read = time.monotonic(), 0
    with DumpReader(cache.reward_key) as reader:
        for name in new:
            report(read, len(new))
            stamp, read_one = wanted[name]
            cache.dumps[name] = _entry(reader, stamp, read_one, known.get(name))
            read += 1
            if time.monotonic() - saved > SAVE_EVERY:
                cache.save()
                saved = time.monotonic()
    for rollout_id, stamp in found.folder.rollouts.items():
        entry = cache.dumps[stamp.name]
        _take(found, stamp, rollout_id, entry.samples, found.rollouts, rollout_id, entry.reason)
        if entry.replaced:
            found.replaced.add(rollout_id)
    for rollout_id, stamp in found.folder.evaluations.items():
        entry = cache.dumps[stamp.name]
        _take(found, stamp, rollout_id, entry.samples, found.evaluations, rollout_id, entry.reason)
    for key, stamp in found.folder.training.items():
        entry = cache.dumps[stamp.name]
        _take(found, stamp, key[0], entry.train, found.training, key, entry.reason)


ReadOne = Callable[[DumpReader, Entry], None]


def _wanted(folder: RunFolder) -> dict[str, tuple[FileStamp, ReadOne]]:
    def of_samples(stamp: FileStamp, rollout_id: int) -> ReadOne:
        def read(reader: DumpReader, entry: Entry) -> None:
            entry.samples = reader.samples(stamp.path, rollout_id)

        return read

    def of_training(stamp: FileStamp, rollout_id: int, rank: int) -> ReadOne:
        def read(reader: DumpReader, entry: Entry) -> None:
            entry.train = reader.training(stamp.path, rollout_id, rank)

        return read

    wanted = {
        stamp.name: (stamp, of_samples(stamp, rollout_id))
        for files in (folder.rollouts, folder.evaluations)
        for rollout_id, stamp in files.items()
    }
    return wanted | {stamp.name: (stamp, of_training(stamp, *key)) for key, stamp in folder.training.items()}


def _entry(reader: DumpReader, stamp: FileStamp, read_one: ReadOne, before: Entry | None) -> Entry:
    entry = Entry(stamp.size, stamp.mtime_ns, stamp.inode)
    try:
        read_one(reader, entry)
    except Unreadable as error:
        entry.reason = str(error)
        if not error.lasting:
            entry.inode = NO_FILE
    if before is not None:
        other = before.samples is not None and entry.samples is not None and before.samples != entry.samples
        entry.replaced = before.replaced or other
    return entry


def _take[K, S](
    found: Scan, stamp: FileStamp, rollout_id: int, summary: S | None, kept: dict[K, S], key: K, reason: str | None
) -> None:
    if summary is not None:
        kept[key] = summary
    else:
        found.bad.append(BadFile(stamp.name, rollout_id, reason or "it was not read", stamp.written_at))

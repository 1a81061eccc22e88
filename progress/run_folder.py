"""Which files of a folder belong to a run, by their names; nothing is opened here."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

TRACES = "traces"
ROLLOUT_DATA, TRAIN_DATA, TRAJECTORY, OUTCOMES, LAUNCH = (
    *("rollout_data", "train_data", "trajectory", "outcomes"),
    "launch.json",
)
_OF_A_RUN = (ROLLOUT_DATA, TRAIN_DATA, TRAJECTORY, OUTCOMES, LAUNCH)
_DIGITS = 9  # of a rollout id
_NUMBER = rf"[0-9]{{1,{_DIGITS}}}"
_ROLLOUT = re.compile(rf"({_NUMBER})\.pt")
_EVALUATION = re.compile(rf"eval_({_NUMBER})\.pt")
_TRAIN = re.compile(rf"({_NUMBER})_({_NUMBER})\.pt")


@dataclass(frozen=True)
class FileStamp:
    """A regular file and what tells it from the one it replaces."""

    path: Path
    name: str  # relative to the traces folder
    size: int
    mtime_ns: int
    inode: int

    @property
    def written_at(self) -> float:
        return self.mtime_ns / 1e9


@dataclass(frozen=True)
class NotAFile:
    """An entry of a dump folder that is no dump: foreign by its name, or no regular file."""

    name: str  # relative to the traces folder
    rollout_id: int | None
    reason: str


@dataclass
class RunFolder:
    """The files of one run as a look at its folder found them."""

    traces: Path
    rollouts: dict[int, FileStamp] = field(default_factory=dict[int, FileStamp])
    evaluations: dict[int, FileStamp] = field(default_factory=dict[int, FileStamp])
    training: dict[tuple[int, int], FileStamp] = field(default_factory=dict[tuple[int, int], FileStamp])
    outcomes: list[FileStamp] = field(default_factory=list[FileStamp])
    foreign: list[NotAFile] = field(default_factory=list[NotAFile])

    @property
    def dumps(self) -> list[FileStamp]:
        return [*self.rollouts.values(), *self.evaluations.values(), *self.training.values()]


def find_traces(folder: Path) -> Path | None:
    """The folder with the dumps: `folder` itself, the one it belongs to or the one it holds; None where there is none.

    A folder that was made and is still empty counts when its name says what it is.
    """
    if folder.absolute().name in _OF_A_RUN[:3] and _holds_a_run(folder.absolute().parent):
        return folder.absolute().parent
    for candidate in (folder, folder / TRACES):
        if _holds_a_run(candidate):
            return candidate
    # --save-traces-dir may give it any name.
    held = [entry for entry in _folders_in(folder) if _holds_a_run(entry)]
    return held[0] if len(held) == 1 else None


def runs_below(folder: Path) -> list[Path]:
    """Folders right below `folder` that hold a run: what somebody meant who named the folder of all runs."""
    return [entry for entry in _folders_in(folder) if find_traces(entry) is not None]


def look(traces: Path) -> RunFolder:
    """Every file below `traces` that names a step, and what lies beside them and does not. Never raises."""
    found = RunFolder(traces)
    for name, stamp in _entries(traces, ROLLOUT_DATA, found):
        rollout, evaluation = _ROLLOUT.fullmatch(name), _EVALUATION.fullmatch(name)
        if rollout is not None:
            _keep(found, found.rollouts, int(rollout[1]), stamp)
        elif evaluation is not None:
            _keep(found, found.evaluations, int(evaluation[1]), stamp)
        else:
            found.foreign.append(NotAFile(stamp.name, None, "its name is not that of a dump"))
    for name, stamp in _entries(traces, TRAIN_DATA, found):
        train = _TRAIN.fullmatch(name)
        if train is not None:
            _keep(found, found.training, (int(train[1]), int(train[2])), stamp)
        else:
            found.foreign.append(NotAFile(stamp.name, None, "its name is not that of a dump"))
    for _ in _entries(traces, TRAJECTORY, found):
        pass  # conversations are opened for the page only; what is no file is named now
    found.outcomes = [stamp for name, stamp in _entries(traces, OUTCOMES, found) if name.endswith(".jsonl")]
    return found


def _holds_a_run(folder: Path) -> bool:
    return any(os.path.exists(folder / name) for name in _OF_A_RUN)


def _folders_in(folder: Path) -> list[Path]:
    try:
        return sorted(entry for entry in folder.iterdir() if os.path.isdir(entry))
    except OSError:
        return []


def _entries(traces: Path, part: str, found: RunFolder) -> Iterator[tuple[str, FileStamp]]:
    try:
        with os.scandir(traces / part) as entries:
            # Hidden names are files in the making, which their writer renames when they are whole.
            listed = sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda e: e.name)
    except FileNotFoundError:
        return
    except OSError as error:
        found.foreign.append(NotAFile(part, None, error.strerror or str(error)))
        return
    for entry in listed:
        name = f"{part}/{entry.name}"
        try:
            status = entry.stat()
        except OSError as error:
            found.foreign.append(NotAFile(_shown(name), _id_in(entry.name), error.strerror or str(error)))
            continue
        if not stat.S_ISREG(status.st_mode):
            found.foreign.append(NotAFile(_shown(name), _id_in(entry.name), f"it is {_kind(status.st_mode)}"))
            continue
        yield entry.name, FileStamp(Path(entry.path), _shown(name), status.st_size, status.st_mtime_ns, status.st_ino)


def _keep[K](found: RunFolder, files: dict[K, FileStamp], key: K, stamp: FileStamp) -> None:
    """The first name of a number wins, the one without leading zeros if it is there."""
    other = files.get(key)
    if other is not None:
        stamp, other = sorted((stamp, other), key=lambda one: len(one.name))
        found.foreign.append(NotAFile(other.name, None, f"{stamp.name} has the same number"))
    files[key] = stamp


def _id_in(name: str) -> int | None:
    match = re.match(rf"(?:eval_)?({_NUMBER})(?:_{_NUMBER})?\.pt\Z", name)
    return int(match[1]) if match else None


def _kind(mode: int) -> str:
    names = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}
    return names.get(stat.S_IFMT(mode), "a device")


def _shown(name: str) -> str:
    """Names on disk are bytes; what is no UTF-8 in them cannot be printed."""
    return name.encode(errors="replace").decode()

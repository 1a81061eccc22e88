"""Which checkpoint of a folder is the latest, and whether it is whole; read without PyTorch, as a preflight must."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TRACKER = "latest_checkpointed_iteration.txt"
TRAINER_FILE = "trainer.pt"
MANIFEST_FILE = "manifest.json"

_FOLDER = re.compile(r"iter_(\d{7,})")


class CheckpointError(Exception):
    """A checkpoint that cannot be loaded: which file, why, and what else there is to go on from."""

    def __init__(self, path: Path, reason: str, older: Path | None = None, *, way_out: str | None = None) -> None:
        self.way_out = way_out or _way_out(older)
        super().__init__(f"{path}: {reason}; {self.way_out}")
        self.path = path
        self.reason = reason
        self.older = older


def _way_out(older: Path | None) -> str:
    if older is None:
        return "there is no older complete checkpoint beside it: start anew in an empty save folder"
    return (
        f"the newest older complete checkpoint is {older}: write {_iteration(older)} into {older.parent / TRACKER} "
        "and resume"
    )


@dataclass(frozen=True)
class FoundCheckpoint:
    """A checkpoint's folder and the 0-based id of the last rollout it contains."""

    iteration: int
    folder: Path


def find_latest(save_dir: Path) -> FoundCheckpoint | None:
    """The checkpoint that the tracker names, or None where there is no tracker; nothing is loaded.

    Raises CheckpointError when the tracker is unreadable or its folder is missing.
    """
    tracker = save_dir / TRACKER
    if not tracker.exists():
        return None
    iteration = read_tracker(save_dir)
    if iteration is None:
        raise CheckpointError(tracker, "it does not hold the number of a rollout", newest_complete(save_dir, None))
    folder = save_dir / f"iter_{iteration:07d}"
    if not folder.is_dir():
        raise CheckpointError(folder, f"{TRACKER} names it and it does not exist", newest_complete(save_dir, iteration))
    return FoundCheckpoint(iteration, folder)


def verify_latest(save_dir: Path) -> FoundCheckpoint:
    """The checkpoint that the tracker names, compared with its manifest.

    Raises CheckpointError, naming the file and the newest older complete checkpoint.
    """
    found = find_latest(save_dir)
    if found is None:
        raise CheckpointError(
            save_dir / TRACKER, "there is no such file, nothing was saved here", newest_complete(save_dir, None)
        )
    try:
        verify(found.folder)
    except CheckpointError as error:
        older = newest_complete(save_dir, found.iteration)
        raise CheckpointError(error.path, error.reason, older) from error
    return found


def write_manifest(folder: Path) -> None:
    """Size and SHA-256 of every file of a checkpoint, into MANIFEST_FILE beside them. Raises OSError."""
    manifest = {
        str(path.relative_to(folder)): {"bytes": path.stat().st_size, "sha256": _digest(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    (folder / MANIFEST_FILE).write_text(json.dumps(manifest, indent=1) + "\n")


def verify(folder: Path) -> None:
    """Compare every file with the manifest; raises CheckpointError."""
    path = folder / MANIFEST_FILE
    try:
        manifest: dict[str, dict[str, Any]] = json.loads(path.read_text())
        expected = {str(name): (int(entry["bytes"]), str(entry["sha256"])) for name, entry in manifest.items()}
    except FileNotFoundError as error:
        raise CheckpointError(path, "it is missing") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(path, f"it cannot be read ({error})") from error
    if TRAINER_FILE not in expected:
        raise CheckpointError(path, f"it does not list {TRAINER_FILE}")
    for name, (size, digest) in expected.items():
        file = folder / name
        try:
            actual = file.stat().st_size
            if actual != size:
                raise CheckpointError(file, f"it has {actual} bytes, {size} were written")
            if _digest(file) != digest:
                raise CheckpointError(file, "its content is not what was written (SHA-256 differs)")
        except OSError as error:
            raise CheckpointError(file, error.strerror or str(error)) from error


def newest_complete(save_dir: Path, before: int | None) -> Path | None:
    """The folder of the last checkpoint that is whole, of those before rollout `before` (None: of all)."""
    numbered = [(_iteration(path), path) for path in save_dir.glob("iter_*") if _FOLDER.fullmatch(path.name)]
    for iteration, path in sorted(numbered, reverse=True):
        if before is not None and iteration >= before:
            continue
        try:
            verify(path)
        except CheckpointError:
            continue
        return path
    return None


def read_tracker(save_dir: Path) -> int | None:
    """0-based id of the last saved rollout, or None where it does not name one."""
    try:
        text = (save_dir / TRACKER).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if text.isascii() and text.isdigit() else None


def _iteration(folder: Path) -> int:
    return int(folder.name.removeprefix("iter_"))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

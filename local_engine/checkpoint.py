"""Checkpoints of the local engine, laid out like those of Miles.

    <save_dir>/latest_checkpointed_iteration.txt   0-based id of the last saved rollout; written last
    <save_dir>/iter_0000004/trainer.pt             everything a resumed run needs besides the base model
    <save_dir>/iter_0000004/...                    the model in Hugging Face or PEFT format
    <save_dir>/iter_0000004/manifest.json          size and SHA-256 of every other file

A checkpoint is built in a folder of another name, flushed and renamed, so that a process killed at any moment, or a
full disk, leaves the checkpoints before it whole and the tracker pointing at the newest of them.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from torch import Tensor

from disk.atomic_file import (
    atomic_file,
    is_left_over,
    owner,
    remove_left_over_files,
    sync_folder,
)
from local_engine.plain_tensors import compact, save_tensors

TRACKER = "latest_checkpointed_iteration.txt"
TRAINER_FILE = "trainer.pt"
MANIFEST_FILE = "manifest.json"

_FOLDER = re.compile(r"iter_(\d{7,})")
_TEMPORARY = re.compile(r"iter_\d{7,}\.(?:tmp|old)-(?P<owner>.+-\d+)")


class CheckpointError(Exception):
    """A checkpoint that cannot be loaded: which file, why, and what else there is to go on from."""

    def __init__(self, path: Path, reason: str, older: Path | None = None, *, way_out: str | None = None) -> None:
        super().__init__(f"{path}: {reason}; {way_out or _way_out(older)}")
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


class CheckpointNotWritten(Exception):
    """The checkpoint could not be written (disk full, ...); those before it and the tracker are as they were."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"checkpoint {path} was not written: {reason}; earlier checkpoints are whole")
        self.path = path
        self.reason = reason


@dataclass(frozen=True)
class DataPosition:
    """Which prompt comes next: `offset` prompts of epoch `epoch` are used, in the order that `order_seed` gives."""

    epoch: int
    offset: int
    order_seed: int


@dataclass(frozen=True)
class TrainerState:
    """What a resumed run needs to go on as if it had never stopped; tensors and plain containers only.

    weights: the trainable tensors by name. optimizer: its `state_dict()`. rng: see `capture_rng`. metrics: one dict
    per finished rollout. config_fingerprint: identifies the options that must not change on resume. extra: more of
    the caller's own, for instance the number of prompts replaced so far.
    """

    weights: dict[str, Tensor]
    optimizer: dict[str, Any]
    rng: dict[str, Any]
    data_position: DataPosition
    metrics: list[dict[str, Any]]
    config_fingerprint: str
    extra: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class FoundCheckpoint:
    """A checkpoint's folder and the 0-based id of the last rollout it contains."""

    iteration: int
    folder: Path


def save(save_dir: Path, iteration: int, state: TrainerState, write_model: Callable[[Path], None]) -> Path:
    """Write the checkpoint after rollout `iteration` (0-based) and point the tracker at it; returns its folder.

    `write_model` puts the model's own files into the folder it is given. A checkpoint of the same rollout that the
    tracker already names is kept as it is: it holds the state as it was right after that rollout.
    Raises CheckpointNotWritten when the disk refuses; whatever else goes wrong leaves no trace either.
    """
    folder = save_dir / f"iter_{iteration:07d}"
    try:
        save_dir.mkdir(parents=True, exist_ok=True)
        remove_stale(save_dir)
        if folder.is_dir() and _read_tracker(save_dir) == iteration:
            return folder
        temporary = save_dir / f"{folder.name}.tmp-{owner()}"
        try:
            _build(temporary, state, write_model)
            _put_in_place(temporary, folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        with atomic_file(save_dir / TRACKER) as file:
            file.write(f"{iteration}\n".encode())
    except OSError as error:
        raise CheckpointNotWritten(folder, error.strerror or str(error)) from error
    except SafetensorError as error:
        raise CheckpointNotWritten(folder, str(error)) from error
    return folder


def find_latest(save_dir: Path) -> FoundCheckpoint | None:
    """The checkpoint that the tracker names, or None where there is no tracker; nothing is loaded.

    Raises CheckpointError when the tracker is unreadable or its folder is missing.
    """
    tracker = save_dir / TRACKER
    if not tracker.exists():
        return None
    iteration = _read_tracker(save_dir)
    if iteration is None:
        raise CheckpointError(tracker, "it does not hold the number of a rollout", _newest_complete(save_dir, None))
    folder = save_dir / f"iter_{iteration:07d}"
    if not folder.is_dir():
        raise CheckpointError(
            folder, f"{TRACKER} names it and it does not exist", _newest_complete(save_dir, iteration)
        )
    return FoundCheckpoint(iteration, folder)


def load_latest(save_dir: Path) -> TrainerState:
    """Load the checkpoint that the tracker names, tensors on the CPU.

    Every file is compared with the manifest first: PyTorch's reader does not notice a flipped bit.
    Raises CheckpointError, naming the file and the newest older complete checkpoint.
    """
    found = find_latest(save_dir)
    if found is None:
        raise CheckpointError(
            save_dir / TRACKER, "there is no such file, nothing was saved here", _newest_complete(save_dir, None)
        )
    try:
        return load(found.folder)
    except CheckpointError as error:
        older = _newest_complete(save_dir, found.iteration)
        raise CheckpointError(error.path, error.reason, older) from error


def load(folder: Path) -> TrainerState:
    """Load one checkpoint folder (`iter_NNNNNNN`); raises CheckpointError."""
    _verify(folder)
    path = folder / TRAINER_FILE
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, EOFError, RuntimeError, ValueError, pickle.UnpicklingError) as error:
        raise CheckpointError(path, f"it cannot be read ({error})") from error
    names = {item.name for item in fields(TrainerState)}
    if not isinstance(content, dict) or set(cast("dict[str, Any]", content)) != names:
        raise CheckpointError(path, f"it does not hold exactly {', '.join(sorted(names))}")
    values = cast("dict[str, Any]", content)
    try:
        position = DataPosition(**values.pop("data_position"))
    except TypeError as error:
        raise CheckpointError(path, f"its data position is not one of this version ({error})") from error
    return TrainerState(data_position=position, **values)


def remove_stale(save_dir: Path) -> list[Path]:
    """Remove what this host's dead processes left half-written in the save folder; returns the paths removed."""
    removed = remove_left_over_files(save_dir)
    for path in sorted(save_dir.glob("iter_*")):
        match = _TEMPORARY.fullmatch(path.name)
        if match and is_left_over(match["owner"]):
            shutil.rmtree(path)
            removed.append(path)
    return removed


def _build(temporary: Path, state: TrainerState, write_model: Callable[[Path], None]) -> None:
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    write_model(temporary)
    content = {item.name: getattr(state, item.name) for item in fields(state)}
    content["data_position"] = vars(state.data_position)
    with (temporary / TRAINER_FILE).open("wb") as file:
        save_tensors(compact(content), file)
    manifest = {
        str(path.relative_to(temporary)): {"bytes": path.stat().st_size, "sha256": _digest(path)}
        for path in sorted(temporary.rglob("*"))
        if path.is_file()
    }
    (temporary / MANIFEST_FILE).write_text(json.dumps(manifest, indent=1) + "\n")
    for path in sorted(temporary.rglob("*")):
        _sync(path)
    sync_folder(temporary)


def _put_in_place(temporary: Path, folder: Path) -> None:
    if folder.exists():
        # A run that went on from an older checkpoint meets the folders of the run before it. The tracker names an
        # older one at this moment, so between the two renames nothing that it points at is missing.
        aside = folder.with_name(f"{folder.name}.old-{owner()}")
        os.rename(folder, aside)
        os.rename(temporary, folder)
        shutil.rmtree(aside)
    else:
        os.rename(temporary, folder)
    sync_folder(folder.parent)


def _verify(folder: Path) -> None:
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


def _newest_complete(save_dir: Path, before: int | None) -> Path | None:
    numbered = [(_iteration(path), path) for path in save_dir.glob("iter_*") if _FOLDER.fullmatch(path.name)]
    for iteration, path in sorted(numbered, reverse=True):
        if before is not None and iteration >= before:
            continue
        try:
            _verify(path)
        except CheckpointError:
            continue
        return path
    return None


def _read_tracker(save_dir: Path) -> int | None:
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


def _sync(path: Path) -> None:
    if path.is_dir():
        sync_folder(path)
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

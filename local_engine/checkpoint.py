"""Checkpoints of the local engine, laid out like those of Miles.

    <save_dir>/latest_checkpointed_iteration.txt   0-based id of the last saved rollout; written last
    <save_dir>/iter_0000004/trainer.pt             everything a resumed run needs besides the base model
    <save_dir>/iter_0000004/...                    the model in Hugging Face or PEFT format
    <save_dir>/iter_0000004/manifest.json          size and SHA-256 of every other file

A checkpoint is built in a folder of another name, flushed and renamed, so that a process killed at any moment, or a
full disk, leaves the checkpoints before it whole and the tracker pointing at the newest of them.
"""

from __future__ import annotations

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
from local_engine.manifest import (
    TRACKER,
    TRAINER_FILE,
    CheckpointError,
    newest_complete,
    read_tracker,
    verify_latest,
    write_manifest,
)
from local_engine.plain_tensors import compact, save_tensors

_TEMPORARY = re.compile(r"iter_\d{7,}\.(?:tmp|old)-(?P<owner>.+-\d+)")


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
        if folder.is_dir() and read_tracker(save_dir) == iteration:
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


def load_latest(save_dir: Path) -> TrainerState:
    """Load the checkpoint that the tracker names, tensors on the CPU.

    Every file is compared with the manifest first: PyTorch's reader does not notice a flipped bit.
    Raises CheckpointError, naming the file and the newest older complete checkpoint.
    """
    found = verify_latest(save_dir)
    try:
        return _read(found.folder)
    except CheckpointError as error:
        older = newest_complete(save_dir, found.iteration)
        raise CheckpointError(error.path, error.reason, older) from error


def _read(folder: Path) -> TrainerState:
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
    write_manifest(temporary)
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


def _sync(path: Path) -> None:
    if path.is_dir():
        sync_folder(path)
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

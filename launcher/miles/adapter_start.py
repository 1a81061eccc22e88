"""Where a LoRA run goes on. Miles saves only `iter_NNNNNNN/adapter`, without a tracker, and counts from 0 again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from launcher.errors import NothingLeftError, OptionsError
from launcher.save_folder import StartPoint, is_used, validate_folder

_ITERATION = re.compile(r"iter_(\d+)\Z")
_SHARD = re.compile(r"adapter_megatron_rank(\d+)\.pt\Z")


@dataclass(frozen=True)
class SavedAdapter:
    """`rollout` is the 0-based id of the rollout after which it was saved; `shards` is 0 for a PEFT adapter."""

    folder: Path
    rollout: int
    shards: int


def find_adapter_start(save_dir: Path, load_dir: Path | None, resume: bool, num_rollout: int, ranks: int) -> StartPoint:
    """`ranks` is the number of training GPUs; the shards of an adapter belong to as many.

    Raises OptionsError for folders that cannot be used so, NothingLeftError when every rollout is done.
    """
    validate_folder("--save-dir", save_dir)
    if is_used(save_dir):
        source = load_dir or save_dir
        raise OptionsError(
            f"--save-dir {save_dir} already holds checkpoints, and Miles counts a LoRA run from rollout 0 again, so it "
            f"would write over them; go on with --load-dir {source} --save-dir and the name of a new folder"
        )
    if load_dir is None:
        if resume:
            raise OptionsError(f"--resume: {save_dir} holds no adapter; name the folder that does with --load-dir")
        return StartPoint(None, 0, num_rollout)
    adapter = newest_adapter(load_dir)
    if adapter.shards not in (0, ranks):
        raise OptionsError(
            f"--load-dir: {adapter.folder} was saved by {adapter.shards} training GPUs and this plan has {ranks}; each "
            "loads a shard of its own, so use as many"
        )
    done = adapter.rollout + 1
    if done >= num_rollout:
        raise NothingLeftError(
            f"nothing left to do: {done} rollouts are done in {load_dir} and --num-rollout is {num_rollout}; "
            f"raise --num-rollout above {done} to go on"
        )
    return StartPoint(adapter.folder, done, num_rollout - done)


def newest_adapter(load_dir: Path) -> SavedAdapter:
    """The last one that is complete: of one run, those with fewer shards than others were cut short.

    Raises OptionsError when there is none.
    """
    found = sorted(_adapters(load_dir), key=lambda item: item[0], reverse=True)
    counted = [(rollout, folder, complete_shards(folder)) for rollout, folder in found]
    most = max((shards for _, _, shards in counted if shards is not None), default=0)
    for rollout, folder, shards in counted:
        if shards is not None and shards in (0, most):
            return SavedAdapter(folder, rollout, shards)
    incomplete = f" ({len(found)} are there and not complete)" if found else ""
    raise OptionsError(
        f"--load-dir {load_dir} holds no complete iter_*/adapter{incomplete}; name the save folder of a LoRA run, or "
        "leave it out to start anew"
    )


def complete_shards(folder: Path) -> int | None:
    """Number of Megatron's shards when all are there, 0 for a complete PEFT adapter, None for neither."""
    sizes = {entry.name: entry.stat().st_size for entry in folder.iterdir() if entry.is_file()}
    ranks = {int(match[1]) for name in sizes if (match := _SHARD.match(name))}
    if ranks:
        whole = ranks == set(range(len(ranks))) and all(sizes[f"adapter_megatron_rank{rank}.pt"] for rank in ranks)
        # The optimizer's state is written last, one file a rank, so a part of them is a save that was cut short.
        states = sum(1 for name, size in sizes.items() if name.startswith("training_state_rank") and size)
        return len(ranks) if whole and states in (0, len(ranks)) else None
    weights = any(sizes.get(f"adapter_model.{kind}") for kind in ("safetensors", "bin"))
    return 0 if weights and sizes.get("adapter_config.json") else None


def _adapters(load_dir: Path) -> Iterator[tuple[int, Path]]:
    validate_folder("--load-dir", load_dir)
    try:
        entries = list(load_dir.iterdir())
    except OSError as error:
        raise OptionsError(f"--load-dir {load_dir} cannot be read ({error.strerror})") from None
    for entry in entries:
        match = _ITERATION.match(entry.name)
        if match and (entry / "adapter").is_dir():
            yield int(match[1]), entry / "adapter"

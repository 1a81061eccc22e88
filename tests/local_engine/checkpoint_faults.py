"""Run as a program: saves checkpoints while the process is killed, or the disk fills, at every point in turn.

    checkpoint_faults.py {kill,kill-back} FOLDER   one child per point; prints what was loaded after each
    checkpoint_faults.py disk FOLDER               FOLDER is on a small file system; prints the error's text

A fault point is a call by which a checkpoint reaches the disk. The children are forks: torch is imported once.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from local_engine.checkpoint import (
    CheckpointNotWritten,
    DataPosition,
    TrainerState,
    load_latest,
    remove_stale,
    save,
)
from local_engine.manifest import TRACKER

POINTS = ("open", "mkdir", "fsync", "rename", "replace", "rmdir", "unlink")


def state(marker: int, numbers: int = 64) -> TrainerState:
    return TrainerState(
        weights={"layer.lora_A": torch.full((numbers,), float(marker))},
        optimizer={"state": {0: {"step": torch.tensor(float(marker)), "exp_avg": torch.ones(numbers)}}},
        rng={"torch": torch.get_rng_state()},
        data_position=DataPosition(epoch=0, offset=marker, order_seed=7),
        metrics=[{"rollout_id": marker, "reward": 0.5}],
        config_fingerprint="abc",
    )


def write_model(folder: Path) -> None:
    (folder / "adapter").mkdir()
    (folder / "adapter" / "adapter_model.safetensors").write_bytes(b"x" * 5000)


def kill_at(point: int) -> None:
    """From now on the `point`-th call of POINTS ends this process with SIGKILL, before it takes effect."""
    seen = 0

    def wrapped(call: Callable[..., Any]) -> Callable[..., Any]:
        def count(*arguments: Any, **named: Any) -> Any:
            nonlocal seen
            seen += 1
            if seen == point:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **named)

        return count

    for name in POINTS:
        setattr(os, name, wrapped(getattr(os, name)))


def kill(folder: Path, went_back: bool) -> None:
    """`went_back`: the rollout to be saved has a folder already, left by a run that was resumed from an older one."""
    save(folder, 0, state(0), write_model)
    loaded: list[int] = []
    point = 0
    while True:
        point += 1
        iteration = 1 if went_back else point
        if went_back:
            save(folder, 1, state(1), write_model)
            (folder / TRACKER).write_text("0")
        child = os.fork()
        if child == 0:
            kill_at(point)
            save(folder, iteration, state(100 + point), write_model)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        loaded.append(load_latest(folder).data_position.offset)
        if not os.WIFSIGNALED(status):
            break
    remove_stale(folder)
    left = [name for name in os.listdir(folder) if ".tmp-" in name or ".old-" in name]
    print(json.dumps({"points": point - 1, "loaded": loaded, "left": left}))


def disk(folder: Path) -> None:
    save(folder, 0, state(0), write_model)
    try:
        save(folder, 1, state(1, numbers=1_000_000), write_model)
    except CheckpointNotWritten as error:
        print(json.dumps({"error": str(error), "offset": load_latest(folder).data_position.offset}))
    save(folder, 2, state(2), write_model)
    print(json.dumps({"offset": load_latest(folder).data_position.offset, "left": sorted(os.listdir(folder))}))


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "disk":
        disk(Path(sys.argv[2]))
    else:
        kill(Path(sys.argv[2]), went_back=sys.argv[1] == "kill-back")

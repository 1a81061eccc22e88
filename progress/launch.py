"""What the launch file of a run says about its size: how many rollouts, how many trainer ranks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import orjson

from disk.regular_file import open_regular
from progress.run_folder import LAUNCH

_LARGEST = 16 * 2**20  # bytes of a launch file
_MOST_RANKS = 16_384  # more would take memory for every step that lacks them


@dataclass(frozen=True)
class Launch:
    """None where the file does not say, or there is none. `problem` says why it could not be read."""

    path: Path | None = None
    engine: str | None = None
    num_rollout: int | None = None
    train_ranks: int | None = None  # 0: trains nothing
    reward_key: str | None = None
    save_dir: Path | None = None
    wandb_project: str | None = None
    wandb_team: str | None = None
    started_at: float | None = None  # when the file was written, Unix seconds
    problem: str | None = None


def read_launch(traces: Path) -> Launch:
    """The launch file beside the dumps, else the newest of the save folder around them. Never raises."""
    candidates = [traces / LAUNCH, *_newest_first(traces.parent / "launch"), *_newest_first(traces / "launch")]
    for path in candidates:
        if os.path.exists(path):
            return _read(path)
    return Launch()


def _read(path: Path) -> Launch:
    try:
        with open_regular(path) as file:
            started_at = os.fstat(file.fileno()).st_mtime
            content: object = orjson.loads(file.read(_LARGEST))
    except OSError as error:
        return Launch(path, problem=error.strerror or str(error))
    except orjson.JSONDecodeError as error:
        return Launch(path, problem=f"it is no JSON ({error})")
    if not isinstance(content, dict):
        return Launch(path, problem=f"it holds a {type(content).__name__}, not a plan")
    plan = cast(dict[str, Any], content)
    raw: object = plan.get("arguments")
    arguments = [str(part) for part in cast(list[object], raw)] if isinstance(raw, list) else []
    engine = plan.get("engine")
    save_dir: object = _mapping(plan.get("files")).get("save")
    return Launch(
        path=path,
        engine=engine if isinstance(engine, str) else None,
        num_rollout=_whole(_after(arguments, "--num-rollout")),
        train_ranks=_train_ranks(_mapping(plan.get("placement")), arguments),
        reward_key=_after(arguments, "--reward-key"),
        save_dir=Path(save_dir) if isinstance(save_dir, str) and save_dir else None,
        wandb_project=_after(arguments, "--wandb-project"),
        wandb_team=_after(arguments, "--wandb-team"),
        started_at=started_at,
    )


def _train_ranks(placement: dict[str, Any], arguments: Sequence[str]) -> int | None:
    if "--debug-rollout-only" in arguments or _after(arguments, "--mode") == "debug_rollout_only":
        return 0
    planned = _whole(placement.get("train_ranks"))
    nodes, each = (_whole(_after(arguments, f"--actor-num-{part}")) for part in ("nodes", "gpus-per-node"))
    # What the trainer was started with counts, also where somebody changed it beside the plan.
    ranks = nodes * each if nodes and each and planned != 0 else planned
    return ranks if ranks is not None and ranks <= _MOST_RANKS else None


def _after(arguments: Sequence[str], name: str) -> str | None:
    """The value of the last `name VALUE` or `name=VALUE`, as argument parsers take it."""
    found = None
    for position, argument in enumerate(arguments):
        if argument == name and position + 1 < len(arguments):
            found = arguments[position + 1]
        elif argument.startswith(f"{name}="):
            found = argument.split("=", 1)[1]
    return found


def _whole(value: object) -> int | None:
    if isinstance(value, str):
        value = int(value) if value.isascii() and value.isdigit() and len(value) <= 9 else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9 else None


def _mapping(value: object) -> dict[str, Any]:
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def _newest_first(folder: Path) -> list[Path]:
    try:
        found = [(path.stat().st_mtime_ns, path) for path in folder.glob("*.json")]
    except OSError:
        return []
    return [path for _, path in sorted(found, reverse=True)]

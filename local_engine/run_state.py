"""What a run carries from one rollout to the next, to a checkpoint and back."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from local_engine.checkpoint import DataPosition, TrainerState, load_latest
from local_engine.config import LocalRunConfig
from local_engine.data import PromptStream, RunData, made_train_ids
from local_engine.engine import Engine
from local_engine.manifest import CheckpointError, find_latest
from local_engine.rng import capture_rng, restore_rng
from local_engine.rollout import Counters, StartedGroup

# A resumed run may change how long it runs, where it writes and what it shows, and nothing that alters a step.
FREE_TO_CHANGE = {
    "run_id", "save_dir", "traces_dir", "load_dir", "resume", "num_rollout", "save_interval", "eval_interval",
    "eval_samples", "agent_server_url", "max_consecutive_discards", "wandb", "extra_env", "threads", "mode",
    "session_address", "heldout_tasks_per_family", "prompt_data", "harbor_tasks_dir",
}  # fmt: skip


@dataclass
class RunState:
    """`done` rollouts are finished; `metrics` has one dict for each; `pending` groups were started beyond them."""

    done: int = 0
    counters: Counters = field(default_factory=Counters)
    metrics: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    heldout: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])
    pending: list[StartedGroup] = field(default_factory=list[StartedGroup])


@dataclass(frozen=True)
class DataMark:
    """Where the data stood after a step: what a resumed run takes next, and groups to start again before that."""

    position: DataPosition
    counters: Counters
    pending: Sequence[StartedGroup] = ()


def fingerprint(config: LocalRunConfig, data: RunData) -> dict[str, str]:
    """Options and data that must be the same on resume, as text by name."""
    return _option_marks(config) | {"prompts": _prompts_mark(p.instance_id for p in data.train)}


def _option_marks(config: LocalRunConfig) -> dict[str, str]:
    return {k: repr(v) for k, v in asdict(config).items() if k not in FREE_TO_CHANGE}


def _prompts_mark(instance_ids: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(instance_ids).encode()).hexdigest()[:16]


def capture(engine: Engine, data: DataMark, state: RunState, marks: dict[str, str]) -> TrainerState:
    """Everything that the next rollout depends on."""
    trainer = engine.trainer.state()
    return TrainerState(
        weights=engine.policy.state(),
        optimizer=trainer["optimizer"],
        rng=capture_rng(),
        data_position=data.position,
        metrics=list(state.metrics),
        config_fingerprint=json.dumps(marks, sort_keys=True),
        extra={
            "done": state.done,
            "optimizer_steps": trainer["steps"],
            "next_group": data.counters.group,
            "next_sample": data.counters.sample,
            "pending": [[p.group, p.first, p.position.epoch, p.position.offset] for p in data.pending],
            "heldout": [[place, success] for place, success in state.heldout],
        },
    )


@dataclass(frozen=True)
class SavedStart:
    """A checkpoint that was made with the options of this run."""

    folder: Path
    state: TrainerState


def load_start(config: LocalRunConfig) -> SavedStart | None:
    """The checkpoint in `load_dir`, or None where a run starts anew; nothing is written.

    Raises CheckpointError: broken, or made with other options or other made tasks (named with both values).
    """
    if config.load_dir is None:
        return None
    saved = load_latest(config.load_dir)
    found = find_latest(config.load_dir)
    assert found is not None
    was, now = json.loads(saved.config_fingerprint), _option_marks(config)
    if config.prompt_data is None:
        now["prompts"] = _prompts_mark(made_train_ids(config))
    else:
        was.pop("prompts", None)
    _require_same(found.folder, was, now)
    return SavedStart(found.folder, saved)


def restore(
    config: LocalRunConfig, engine: Engine, data: RunData, start: SavedStart | None
) -> tuple[RunState, PromptStream]:
    """The state to start from: fresh, or that of `start`.

    Raises CheckpointError where it was made with other prompts, or does not fit the model.
    """
    if start is None:
        return RunState(), PromptStream(data.train, config.seed)
    saved = start.state
    _require_same(start.folder, json.loads(saved.config_fingerprint), fingerprint(config, data))
    seed = saved.data_position.order_seed
    try:
        engine.policy.load_state(saved.weights)
        engine.trainer.load_state({"optimizer": saved.optimizer, "steps": saved.extra["optimizer_steps"]})
        restore_rng(saved.rng)
        state = RunState(
            done=int(saved.extra["done"]),
            counters=Counters(int(saved.extra["next_group"]), int(saved.extra["next_sample"])),
            metrics=list(saved.metrics),
            heldout=[(int(place), float(success)) for place, success in saved.extra["heldout"]],
            pending=[
                StartedGroup(int(group), int(first), DataPosition(int(epoch), int(offset), seed))
                for group, first, epoch, offset in saved.extra.get("pending", ())
            ],
        )
    except (ValueError, KeyError, RuntimeError) as error:
        raise CheckpointError(start.folder, f"it does not fit this run ({error})") from error
    return state, PromptStream(data.train, config.seed, saved.data_position)


def _require_same(folder: Path, saved: dict[str, str], now: dict[str, str]) -> None:
    # A checkpoint made before an option existed was made without it.
    saved = {name: saved.get(name, repr(None)) for name in saved.keys() | now.keys()}
    odd = [name for name in sorted(saved) if saved[name] != now.get(name)]
    if odd:
        shown = "; ".join(f"{name} was {saved.get(name)}, is {now.get(name)}" for name in odd[:5])
        raise CheckpointError(
            folder,
            f"it was made with other options, which a resume must repeat: {shown}",
            way_out="repeat them, or start anew in an empty save folder",
        )

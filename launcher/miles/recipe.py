"""What a launcher makes of its options, and what it is told of the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from launcher.miles.memory import Serving, Training
from launcher.miles.parallel import Layout
from launcher.model_shape import ModelShape
from launcher.options import CommonOptions
from launcher.save_folder import StartPoint


@dataclass(frozen=True)
class Conversion:
    """Of the Hugging Face checkpoint to Megatron's torch_dist, before training."""

    hf_checkpoint: str
    folder: str
    nodes: int
    skipped: bool  # the folder is used as it is


@dataclass(frozen=True)
class Offload:
    """Of the trainer to a node's disk during rollout."""

    folder: str
    gib_per_node: float


@dataclass(frozen=True)
class SandboxLifetime:
    """Of a provider's sandboxes, in minutes: how long after its last use one stops, and when it is deleted."""

    auto_stop: int
    auto_delete: int


@dataclass(frozen=True)
class Recipe:
    """All that differs between launchers. `arguments` is complete, for the newest Miles."""

    shape: ModelShape
    layout: Layout
    placement: Mapping[str, Any]
    script: str  # of Miles
    arguments: Sequence[str]
    training: Training
    serving: Serving
    hf_checkpoint: str
    checkpoints: Mapping[str, str]  # all that are read, by the option that names them
    traces: str | None
    most_in_flight: int  # trials at once
    checkpoint_bytes: int
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    memory: Mapping[str, Any] = field(default_factory=dict[str, Any])  # beside what a GPU takes
    conversion: Conversion | None = None
    offload: Offload | None = None
    generated: Mapping[str, str] = field(default_factory=dict[str, str])  # path -> text, written before submission
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Run:
    """What a recipe needs to know beside its options."""

    start: StartPoint
    wandb: bool
    trial_timeout: float  # seconds, AGENT_TRIAL_TIMEOUT of the job


type Build[T: CommonOptions] = Callable[[T, Run], Recipe]
type FindStart[T: CommonOptions] = Callable[[T], StartPoint]

"""What one run of the local engine is made of, fully resolved: the launcher builds it, the loop reads it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Device = Literal["auto", "cpu", "cuda"]
Dtype = Literal["auto", "float32", "bfloat16"]
Mode = Literal["normal", "debug_rollout_only"]

ALL_LINEAR = "all-linear"
"""Target module that stands for every linear layer of the model but its head."""

TRAINED_MODEL = "model"
"""Folder in `save_dir` that the end of a run writes."""


@dataclass(frozen=True)
class WandbConfig:
    """Where a run is logged; the key is never part of it (environment or netrc)."""

    project: str
    team: str | None = None
    run_name: str | None = None
    group: str | None = None


@dataclass(frozen=True)
class Asynchrony:
    """Of a run that samples while it trains."""

    max_weight_staleness: int  # updates between the oldest token of a group and the weights trained on it; 1 or more
    pause_generation_mode: Literal["in_place", "retract"]  # turns in progress when the weights change
    tis_clip: float | None  # largest importance weight of a token; None = no correction
    tis_clip_low: float


@dataclass(frozen=True)
class SessionAddress:
    """Of the session server: what it binds, and the host under which agents reach it."""

    bind: str = "127.0.0.1"
    port: int = 0  # 0 = a free one
    host: str = "127.0.0.1"


@dataclass(frozen=True)
class LocalRunConfig:
    """Every field has a value: defaults are the launcher's business, so that a run is read from one place."""

    # Identity and files
    run_id: str
    save_dir: Path  # checkpoints, pictures, the agent server's trials
    traces_dir: Path  # dumps and outcomes
    hf_checkpoint: str | None  # folder or id; None = SmolLM2-135M-Instruct from its package
    load_dir: Path | None  # folder with a tracker to start from; set whenever `resume` is
    resume: bool

    # Data
    prompt_data: Path | None  # Miles JSONL; None = made from `tasks/`
    harbor_tasks_dir: Path | None  # None = made from `tasks/`
    families: tuple[str, ...]  # task families, used where tasks are made here
    train_tasks_per_family: int
    heldout_tasks_per_family: int
    partial_credit: bool  # verifiers of the tasks made here grade part of the work
    eval_samples: int  # trials per held-out task

    # Steps
    num_rollout: int  # counted from 0, resumed ones included
    save_interval: int  # rollouts
    eval_interval: int  # rollouts; 0 = only before and after
    rollout_batch_size: int  # prompts (groups) a rollout
    n_samples_per_prompt: int  # trajectories a group
    global_batch_size: int  # trajectories an optimizer step

    # Sampling
    max_seq_len: int  # tokens of a whole session
    rollout_max_response_len: int  # new tokens a turn
    temperature: float

    # Optimisation
    lr: float
    warmup_steps: int  # optimizer steps of linear warm-up
    eps_clip: float
    eps_clip_high: float
    kl_loss_coef: float  # 0 = no reference pass
    weight_decay: float
    max_grad_norm: float

    # What is trained
    full_finetune: bool
    lora_rank: int
    lora_alpha: int
    lora_dropout: float
    target_modules: tuple[str, ...]

    # Machine
    device: Device
    dtype: Dtype
    threads: int  # 0 = as many as this process may use
    seed: int
    deterministic: bool  # lock-step batches, one random stream per session

    # Agent
    agent_server_url: str | None  # None = start our own
    agent_model_name: str
    agent_name: str
    agent_options: dict[str, Any]
    max_concurrent: int  # trials at once
    agent_timeout: float  # seconds of one trial's agent
    max_turns: int
    mode: Mode
    max_consecutive_discards: int  # infrastructure discards in a row that end the run

    # Order of sampling and training
    asynchrony: Asynchrony | None = None  # None = in turns

    # Surroundings
    session_address: SessionAddress = SessionAddress()
    wandb: WandbConfig | None = None
    extra_env: dict[str, str] = field(default_factory=dict[str, str])

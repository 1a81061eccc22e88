"""Option groups that launchers compose; a field's text is its help. Optional fields are those an engine may lack.

Defaults are not here: they belong to a recipe and an engine (`launcher.engines`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal


@dataclass(frozen=True)
class Job:
    """What is started, and how far."""

    engine: Annotated[Literal["miles", "local"], "miles: Ray job on GPUs; local: one process on this machine"]
    mode: Annotated[Literal["normal", "debug_rollout_only"], "debug_rollout_only: sample and score, train nothing"]
    dry_run: Annotated[bool, "print the plan; start and write nothing"]
    format: Annotated[Literal["table", "json"], "how --dry-run prints"]
    preflight_only: Annotated[bool, "run the checks and stop"]
    skip_preflight: Annotated[bool, "start without the checks"]
    ray_address: Annotated[str | None, "existing Ray cluster"]
    no_wait: Annotated[bool, "submit and return"]
    max_consecutive_discards: Annotated[int, "trials discarded in a row for infrastructure reasons that end the run"]


@dataclass(frozen=True)
class Machines:
    """Where it runs."""

    num_nodes: Annotated[int, "nodes"]
    num_gpus_per_node: Annotated[int | None, "GPUs of a node; with --engine local 0 (CPU) or 1"]
    session_server_external_host: Annotated[str | None, "address under which agents reach the session servers"]
    miles_host_ip: Annotated[str | None, "numeric address that Miles' services bind and report"]


@dataclass(frozen=True)
class MilesInstall:
    """Of --engine miles alone."""

    megatron_path: Annotated[str | None, "Megatron-LM folder"]
    miles_path: Annotated[str | None, "Miles folder: a checkout, or the folder of an installed package"]
    train_script: Annotated[str | None, "driver to start instead of the one in --miles-path"]
    model_shape: Annotated[str | None, "JSON: the recipe's architecture in other sizes, over those of its model"]
    argument_changes: Annotated[
        tuple[str, ...], "JSON files: arguments to set or leave out for this installation, with reasons"
    ]
    session_server_port: Annotated[int, "port of the first session server"]
    session_server_workers: Annotated[int, "session servers, on consecutive ports"]
    sglang_router_port: Annotated[int, "port of the router"]


@dataclass(frozen=True)
class Files:
    """Where things come from and land."""

    hf_checkpoint: Annotated[str | None, "model to train: folder or Hugging Face id"]
    save_dir: Annotated[str | None, "checkpoints"]
    load_dir: Annotated[str | None, "go on from the newest checkpoint of this folder"]
    resume: Annotated[bool, "go on in --save-dir (from --load-dir where given)"]
    save_traces_dir: Annotated[str | None, "dumps and outcomes"]
    prompt_data: Annotated[str | None, "prompts: Miles JSONL"]
    harbor_tasks_dir: Annotated[str | None, "Harbor task folders, one per instance_id"]
    extra_env_vars: Annotated[tuple[str, ...], "job environment: JSON object, or NAME=VALUE items"]


@dataclass(frozen=True)
class Rollout:
    """Sizes."""

    max_seq_len: Annotated[int, "tokens of a whole session"]
    rollout_max_response_len: Annotated[int, "new tokens of one turn"]
    rollout_batch_size: Annotated[int, "prompts of a rollout"]
    n_samples_per_prompt: Annotated[int, "trajectories of a prompt: one GRPO group"]
    global_batch_size: Annotated[int, "trajectories of an optimizer step"]
    num_rollout: Annotated[int, "rollouts of the whole run, those already done included"]
    save_interval: Annotated[int, "rollouts between checkpoints"]
    lr: Annotated[float, "learning rate"]


@dataclass(frozen=True)
class Agent:
    """The agent server."""

    agent_server_url: Annotated[str | None, "agent server, without user or password"]
    agent_model_name: Annotated[str, "model name that agents send"]


@dataclass(frozen=True)
class Tracking:
    """Who keeps the curves. W&B takes its key from the environment or netrc."""

    wandb_project: Annotated[str | None, "Weights & Biases project"]
    wandb_team: Annotated[str | None, "W&B team"]
    wandb_run_name: Annotated[str | None, "W&B run and group"]
    use_prometheus: Annotated[bool, "export Miles' metrics"]
    prometheus_port: Annotated[int | None, "port of the exporter"]
    prometheus_run_name: Annotated[str | None, "label of the exported metrics"]


@dataclass(frozen=True)
class Lora:
    """Low-rank adapters."""

    lora_rank: Annotated[int, "rank"]
    lora_alpha: Annotated[int, "scale: alpha / rank"]
    lora_dropout: Annotated[float, "dropout of the adapter's input"]
    target_modules: Annotated[tuple[str, ...], "modules that get an adapter"]


@dataclass(frozen=True)
class Asynchrony:
    """Samples from older weights than those that they train."""

    max_weight_staleness: Annotated[int | None, "updates that a group's oldest turn may be behind; older are dropped"]
    pause_generation_mode: Annotated[
        Literal["in_place", "retract"],
        "turns in progress while weights change: go on with their keys and values, or compute them anew",
    ]
    use_tis: Annotated[bool, "weight each token by trainer's over sampler's probability, truncated"]
    tis_clip: Annotated[float, "largest such weight"]
    tis_clip_low: Annotated[float, "smallest such weight"]


@dataclass(frozen=True)
class Local:
    """Of --engine local alone."""

    families: Annotated[tuple[str, ...], "task families, comma-separated, or all"]
    train_tasks_per_family: Annotated[int, "training tasks made per family"]
    heldout_tasks_per_family: Annotated[int, "held-out tasks made per family"]
    partial_credit: Annotated[bool, "made tasks of the hard families give part of the reward for part of the work"]
    eval_samples: Annotated[int, "trials of each held-out task in an evaluation"]
    eval_interval: Annotated[int, "rollouts between evaluations; 0: only before and after"]
    full_finetune: Annotated[bool, "train every weight instead of an adapter"]
    device: Annotated[Literal["auto", "cpu", "cuda"], "where the model runs"]
    dtype: Annotated[Literal["auto", "float32", "bfloat16"], "precision; auto takes what is fast here"]
    threads: Annotated[int, "CPU threads; 0: all that this process may use"]
    seed: Annotated[int, "seed of tasks, order and sampling"]
    deterministic: Annotated[bool, "lock-step batches and one random stream per session"]
    rollout_temperature: Annotated[float, "sampling temperature"]
    eps_clip: Annotated[float, "clip of the ratio, below"]
    eps_clip_high: Annotated[float, "clip of the ratio, above"]
    kl_loss_coef: Annotated[float, "weight of the KL to the reference; 0: no reference pass"]
    warmup_steps: Annotated[int, "optimizer steps of linear warm-up"]
    weight_decay: Annotated[float, "decoupled weight decay"]
    clip_grad: Annotated[float, "largest gradient norm"]
    agent_name: Annotated[str, "agent that acts in the sandbox"]
    agent_options: Annotated[str | None, "the agent's options: a JSON object, or a file with one"]
    max_turns: Annotated[int, "turns of one trial"]
    max_concurrent: Annotated[int, "trials at once"]
    agent_timeout: Annotated[float, "seconds that the agent of one trial may take"]
    from_plan: Annotated[
        str | None, "rehearse a saved plan of --engine miles: its data, agent server, addresses and limits"
    ]


@dataclass(frozen=True)
class CommonOptions:
    """The groups of every launcher; None where the chosen engine has no such group."""

    job: Job
    machines: Machines
    miles: MilesInstall | None
    files: Files
    rollout: Rollout
    agent: Agent
    tracking: Tracking


def miles_install(options: CommonOptions) -> MilesInstall:
    """Raises ValueError with another engine, which has no such group."""
    if options.miles is None:
        raise ValueError("these are not options of --engine miles")
    return options.miles


@dataclass(frozen=True)
class LocalOptions(CommonOptions):
    """The groups of a launcher that can be rehearsed on one machine."""

    lora: Lora | None
    local: Local | None


@dataclass(frozen=True)
class AsyncOptions(LocalOptions):
    """Those of a launcher whose sampler goes on while training runs, on either engine."""

    asynchrony: Asynchrony

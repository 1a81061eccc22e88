"""What an engine takes where an option is not given, and why it refuses the options it does not have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from local_engine.config import ALL_LINEAR
from tasks.families import EASY


@dataclass(frozen=True)
class EngineRules:
    """One column of the recipes' table."""

    name: str
    defaults: Mapping[str, object]
    environment: Mapping[str, tuple[str, ...]]  # option -> variables that stand in for it, first set one wins
    refused: Mapping[str, str] = field(default_factory=dict[str, str])  # option -> why, and the way out
    shown: Mapping[str, str] = field(default_factory=dict[str, str])  # option -> its default, where that says little
    paths: frozenset[str] = frozenset()  # options that name files, handed on as absolute paths
    # option -> its default from the values of others
    derived: Mapping[str, Callable[[Mapping[str, object]], object]] = field(
        default_factory=dict[str, Callable[[Mapping[str, object]], object]]
    )


# Meaning the same whatever runs behind them.
SHARED_DEFAULTS: Mapping[str, object] = {
    "engine": "miles",
    "mode": "normal",
    "dry_run": False,
    "format": "table",
    "preflight_only": False,
    "skip_preflight": False,
    "ray_address": None,
    "no_wait": False,
    "max_consecutive_discards": 256,
    "session_server_external_host": None,
    "miles_host_ip": None,
    "load_dir": None,
    "resume": False,
    "extra_env_vars": (),
    "agent_model_name": "model",
    "wandb_team": None,
}

# The recipes' values that no launcher changes; paths are those of the public Miles container.
MILES_DEFAULTS: Mapping[str, object] = {
    **SHARED_DEFAULTS,
    "num_gpus_per_node": 8,
    "megatron_path": "/root/Megatron-LM",
    "miles_path": "/root/miles",
    "train_script": None,
    "model_shape": None,
    "argument_changes": (),
    "session_server_port": 30000,
    "session_server_workers": 32,
    "sglang_router_port": 31000,
    "rollout_max_response_len": 8192,
    "harbor_tasks_dir": "/root/harbor_tasks",
    "wandb_project": "my-wandb-project",
    "use_prometheus": True,
    "prometheus_port": 9090,
}

MILES_ENVIRONMENT: Mapping[str, tuple[str, ...]] = {
    "num_nodes": ("SLURM_JOB_NUM_NODES",),
    "ray_address": ("RAY_ADDRESS",),
    "miles_host_ip": ("MILES_HOST_IP",),
    "session_server_external_host": ("MILES_ROUTER_EXTERNAL_HOST",),
    "agent_server_url": ("AGENT_SERVER_URL", "SWE_AGENT_URL"),
    "agent_model_name": ("AGENT_MODEL_NAME",),
    "harbor_tasks_dir": ("HARBOR_TASKS_DIR",),
    "wandb_project": ("WANDB_PROJECT",),
    "wandb_team": ("WANDB_TEAM",),
}

MILES_PATHS = frozenset(
    {
        *("megatron_path", "miles_path", "train_script", "model_shape", "base_dir"),
        *("hf_checkpoint", "ref_load"),
        *("fp8_rollout_checkpoint", "save_dir", "load_dir", "save_traces_dir", "prompt_data", "harbor_tasks_dir"),
        "offload_train_disk_dir",
    }
)

MILES_DERIVED: Mapping[str, Callable[[Mapping[str, object]], object]] = {
    "prometheus_run_name": lambda values: values["wandb_run_name"],
}

_OF_MILES = (
    *("train_script", "model_shape", "argument_changes"),
    *("session_server_port", "session_server_workers", "sglang_router_port"),
)
_ONE_PROCESS = "the local engine is one process on this machine"
_OWN_TRAINER = "the local engine trains with PyTorch"
_NO_EXPORTER = "the local engine exports no metrics to Prometheus"

LOCAL = EngineRules(
    name="local",
    defaults={
        **SHARED_DEFAULTS,
        "num_nodes": 1,
        "num_gpus_per_node": None,
        "hf_checkpoint": None,
        "save_dir": None,
        "save_traces_dir": None,
        "prompt_data": None,
        "harbor_tasks_dir": None,
        "max_seq_len": 2048,
        "rollout_max_response_len": 32,
        "num_rollout": 25,
        "save_interval": 5,
        "rollout_batch_size": 6,
        "n_samples_per_prompt": 8,
        "global_batch_size": 48,
        "lr": 3e-4,
        "lora_rank": 16,
        "lora_alpha": 32,
        "lora_dropout": 0.0,
        "target_modules": (ALL_LINEAR,),
        "agent_server_url": None,
        "wandb_project": None,
        "wandb_run_name": None,
        "use_prometheus": False,
        "prometheus_port": None,
        "prometheus_run_name": None,
        "families": EASY,
        "train_tasks_per_family": 32,
        "heldout_tasks_per_family": 8,
        "partial_credit": False,
        "eval_samples": 2,
        "eval_interval": 0,
        "full_finetune": False,
        "device": "auto",
        "dtype": "auto",
        "threads": 0,
        "seed": 0,
        "deterministic": False,
        "rollout_temperature": 0.7,
        "eps_clip": 0.2,
        "eps_clip_high": 0.28,
        "kl_loss_coef": 0.0,
        "warmup_steps": 3,
        "weight_decay": 0.0,
        "clip_grad": 1.0,
        "agent_name": "shell",
        "agent_options": None,
        "max_turns": 3,
        "max_concurrent": 48,
        "agent_timeout": 120.0,
        "from_plan": None,
    },
    environment={
        "agent_server_url": ("AGENT_SERVER_URL", "SWE_AGENT_URL"),
        "agent_model_name": ("AGENT_MODEL_NAME",),
        "harbor_tasks_dir": ("HARBOR_TASKS_DIR",),
    },
    refused={
        "base_dir": f"{_OWN_TRAINER} and derives no path from it; give --save-dir, --prompt-data, --harbor-tasks-dir",
        "model_name": f"{_OWN_TRAINER}; name the model with --hf-checkpoint",
        "megatron_path": f"{_OWN_TRAINER}, not with Megatron; leave it out",
        "miles_path": "the local engine runs without Miles; leave it out",
        **dict.fromkeys(_OF_MILES, "the local engine runs without Miles; leave it out"),
        "ref_load": "the local engine's reference is the checkpoint itself (adapter off); leave it out",
        "skip_prepare": "the local engine converts no checkpoint; leave it out",
        "ray_address": f"{_ONE_PROCESS} and starts no Ray job; leave it out",
        "no_wait": f"{_ONE_PROCESS}, so there is no job to detach from; put it in the background with your shell",
        "session_server_external_host": "the local engine's session server serves this machine only; leave it out",
        "miles_host_ip": "the local engine's services bind to loopback; leave it out",
        "prometheus_port": f"{_NO_EXPORTER}; use --wandb-project",
        "prometheus_run_name": f"{_NO_EXPORTER}; use --wandb-project",
    },
    shown={
        "num_gpus_per_node": "what is there",
        "hf_checkpoint": "SmolLM2-135M-Instruct from its package",
        "save_dir": "runs/<run-id>",
        "save_traces_dir": "<save-dir>/traces",
        "prompt_data": "made from tasks/",
        "harbor_tasks_dir": "made from tasks/",
        "agent_server_url": "starts its own",
        "wandb_project": "off",
        "wandb_run_name": "off",
    },
)


def miles_rules(
    defaults: Mapping[str, object],
    *,
    derived: Mapping[str, Callable[[Mapping[str, object]], object]] | None = None,
    shown: Mapping[str, str] | None = None,
) -> EngineRules:
    """The rules of `--engine miles`: what a launcher says itself, over what no launcher changes."""
    return EngineRules(
        name="miles",
        defaults={**MILES_DEFAULTS, **defaults},
        environment=MILES_ENVIRONMENT,
        shown=shown or {},
        paths=MILES_PATHS,
        derived={**MILES_DERIVED, **(derived or {})},
    )

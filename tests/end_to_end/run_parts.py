"""Configurations and files of small real runs: every part is real but the model's size and its favourite commands."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from local_engine.config import LocalRunConfig
from tests.harbor_service.harbor_server_process import write_task

ROOT = Path(__file__).parents[2]
RIGHT, WRONG, SLOW = "```bash\nmkdir target\n```", "```bash\nfalse\n```", "```bash\nsleep 60\n```"


def base_config(save_dir: Path, checkpoint: Path, tasks_dir: Path, prompts: Path) -> LocalRunConfig:
    """One rollout of 2 prompts x 2 samples, lock-step and fp32, two turns at most, nothing held out."""
    return LocalRunConfig(
        run_id="test",
        save_dir=save_dir,
        traces_dir=save_dir / "traces",
        hf_checkpoint=str(checkpoint),
        load_dir=None,
        resume=False,
        prompt_data=prompts,
        harbor_tasks_dir=tasks_dir,
        families=(),
        train_tasks_per_family=1,
        heldout_tasks_per_family=0,
        partial_credit=False,
        eval_samples=0,
        num_rollout=1,
        save_interval=1,
        eval_interval=0,
        rollout_batch_size=2,
        n_samples_per_prompt=2,
        global_batch_size=4,
        max_seq_len=1500,
        rollout_max_response_len=24,
        temperature=1.0,
        lr=0.003,
        warmup_steps=0,
        eps_clip=0.2,
        eps_clip_high=0.28,
        kl_loss_coef=0.0,
        weight_decay=0.0,
        max_grad_norm=1.0,
        full_finetune=False,
        lora_rank=4,
        lora_alpha=8,
        lora_dropout=0.0,
        target_modules=("all-linear",),
        device="cpu",
        dtype="float32",
        threads=1,
        seed=0,
        deterministic=True,
        agent_server_url=None,
        agent_model_name="model",
        agent_name="shell",
        agent_options={},
        max_concurrent=8,
        agent_timeout=60.0,
        max_turns=2,
        mode="normal",
        max_consecutive_discards=64,
        extra_env={"AGENT_SERVER_WAIT": "20"},
    )


def change(config: LocalRunConfig, save_dir: Path, **values: Any) -> LocalRunConfig:
    """Another run in a folder of its own."""
    return replace(config, **({"save_dir": save_dir, "traces_dir": save_dir / "traces"} | values))


def resumed(config: LocalRunConfig, **values: Any) -> LocalRunConfig:
    return replace(config, **({"load_dir": config.save_dir, "resume": True} | values))


def write_tasks(folder: Path, *names: str) -> Path:
    for name in names:
        write_task(folder, name)
    return folder


def write_prompts(path: Path, *names: str, split: str = "train", **metadata: Any) -> Path:
    with path.open("a") as file:
        for name in names:
            row = {"instance_id": name, "agent_name": "shell", "split": split, **metadata}
            file.write(json.dumps({"prompt": "Create the folder target.", "metadata": row}) + "\n")
    return path


def dump(config: LocalRunConfig, name: str) -> dict[str, Any]:
    return torch.load(config.traces_dir / name, weights_only=True)


def metrics(config: LocalRunConfig) -> list[dict[str, Any]]:
    """One dict a rollout, times left out."""
    rows = [json.loads(line) for line in (config.save_dir / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        assert row.pop("seconds")
    return rows


def command(config: LocalRunConfig, *more: str, script: str = "run.py") -> list[str]:
    """The command line that says what `config` says."""
    values = {
        "save-dir": config.save_dir,
        "hf-checkpoint": config.hf_checkpoint,
        "prompt-data": config.prompt_data,
        "harbor-tasks-dir": config.harbor_tasks_dir,
        "agent-server-url": config.agent_server_url,
        "num-rollout": config.num_rollout,
        "rollout-batch-size": config.rollout_batch_size,
        "n-samples-per-prompt": config.n_samples_per_prompt,
        "global-batch-size": config.global_batch_size,
        "max-seq-len": config.max_seq_len,
        "rollout-max-response-len": config.rollout_max_response_len,
        "rollout-temperature": config.temperature,
        "lr": config.lr,
        "lora-rank": config.lora_rank,
        "save-interval": config.save_interval,
        "threads": 1,
        "device": "cpu",
        "dtype": "float32",
        "eval-samples": 0,
        "max-concurrent": config.max_concurrent,
    }
    flags = [part for name, value in values.items() if value is not None for part in (f"--{name}", str(value))]
    return [sys.executable, script, "--engine", "local", *flags, *more]

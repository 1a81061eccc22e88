"""What a person reads of a run before it starts."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from local_engine.config import LocalRunConfig
from local_engine.data import RunData
from local_engine.machine import Machine
from local_engine.policy import Policy
from local_engine.run_state import RunState
from local_engine.step_table import duration

FLOPS_PER_TOKEN = 20
EFFICIENCY = 0.5
TRIAL_SECONDS = 0.04  # of a trial's sandbox, agent and verifier, several at once
EVALUATION_SHARE = 0.5  # of a trial's time: it is not trained on


def plan_rows(
    config: LocalRunConfig, data: RunData, machine: Machine, policy: Policy, state: RunState
) -> list[tuple[str, str]]:
    """(name, value) pairs: model, machine, data, size of a rollout, where files land."""
    trained = sum(p.numel() for p in policy.trainable.values())
    kind = "all weights" if config.full_finetune else _adapter(config, policy)
    trials = config.rollout_batch_size * config.n_samples_per_prompt
    rollouts = f"{config.num_rollout}, checkpoint every {config.save_interval}"
    if state.done:
        rollouts += f"; {state.done} done, {config.num_rollout - state.done} to go"
    threads = f"{machine.training_threads} threads training, {machine.sampling_threads} sampling"
    dtype = str(machine.dtype).removeprefix("torch.")
    return [
        ("model", f"{policy.checkpoint}; {kind}, {trained / 1e6:.1f} M trained parameters"),
        ("machine", f"{machine.device}, {dtype} ({machine.why}), {threads}"),
        ("agent server", config.agent_server_url or "our own, trials in bubblewrap sandboxes"),
        ("data", f"{len(data.train)} training tasks, {len(data.heldout)} held-out tasks in {data.place}"),
        (
            "a rollout",
            f"{config.rollout_batch_size} prompts x {config.n_samples_per_prompt} samples = {trials} trials, "
            f"up to {config.max_turns} turns of {config.rollout_max_response_len} tokens",
        ),
        ("rollouts", rollouts),
        ("files", f"{shown_path(config.save_dir)} (checkpoints, metrics.jsonl, reward.png, model/)"),
        ("dumps", str(shown_path(config.traces_dir))),
        ("time", f"about {duration(estimate_seconds(config, data, machine, policy, state))}; Ctrl-C saves and stops"),
    ]


def _adapter(config: LocalRunConfig, policy: Policy) -> str:
    lacking = f" (it has no {', '.join(policy.not_there)})" if policy.not_there else ""
    return f"LoRA rank {config.lora_rank}, alpha {config.lora_alpha} on {', '.join(policy.adapted)}{lacking}"


def estimate_seconds(config: LocalRunConfig, data: RunData, machine: Machine, policy: Policy, state: RunState) -> float:
    """A rough time for the whole run, from the machine's speed and two constants measured on a run that learned.

    Sampling and training cost some ten multiplications and additions per parameter and token; a trained policy writes
    about half of the tokens it may.
    """
    parameters = sum(p.numel() for p in policy.model.parameters())
    tokens = config.rollout_max_response_len / 2
    trial = tokens * parameters * FLOPS_PER_TOKEN / (machine.flops * EFFICIENCY) + TRIAL_SECONDS
    evaluations = 2 + (config.num_rollout // config.eval_interval if config.eval_interval else 0)
    trials = config.rollout_batch_size * config.n_samples_per_prompt * (config.num_rollout - state.done)
    return trial * (trials + EVALUATION_SHARE * evaluations * len(data.heldout) * config.eval_samples)


def shown_config(config: LocalRunConfig) -> dict[str, Any]:
    """The configuration as W&B may show it: plain values, without the job's own environment."""
    values = asdict(config)
    values.pop("extra_env")
    return {k: str(v) if isinstance(v, Path) else v for k, v in values.items()}


def shown_path(path: Path) -> Path:
    """Relative to the current folder where it lies below it: shorter to read and to copy."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path

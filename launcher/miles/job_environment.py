"""The job's environment: what Ray hands to every worker, so no secret may be in it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from launcher.addresses import is_host
from launcher.errors import OptionsError
from launcher.extra_env import parse_extra_env
from launcher.options import CommonOptions, MilesInstall
from launcher.secrets import validate_no_credentials, without_credentials
from swe_agent_function import DEFAULT_TRIAL_TIMEOUT

OWN_FOLDER = Path(__file__).resolve().parents[2]

# From this environment where set: the agent function's settings, paths of key files, how NCCL and W&B reach others.
FORWARDED = (
    "AGENT_SERVER_MAX_CONNECTIONS",
    "AGENT_SERVER_TOKEN_FILE",
    "AGENT_SERVER_WAIT",
    "AGENT_TRIAL_TIMEOUT",
    "GLOO_SOCKET_IFNAME",
    "HARBOR_ADMIN_SECRET_FILE",
    "NCCL_DEBUG",
    "NCCL_DEBUG_FILE",
    "NCCL_SOCKET_IFNAME",
    "NETRC",
    "WANDB_BASE_URL",
    "WANDB_MODE",
)


def job_environment(
    options: CommonOptions,
    miles: MilesInstall,
    recipe_environment: Mapping[str, str],
    traces: str | None,
    *,
    nvlink: bool,
    environment: Mapping[str, str],
) -> dict[str, str]:
    """`--extra-env-vars` is strongest, this environment's settings are next; PYTHONPATH and no_proxy are joined."""
    extra = parse_extra_env(options.files.extra_env_vars)
    head = extra.get("MASTER_ADDR") or environment.get("MASTER_ADDR") or _host(options.job.ray_address) or "127.0.0.1"
    if not is_host(head):
        raise OptionsError(f"MASTER_ADDR={without_credentials(head)} is no host name or address; correct or unset it")
    job = {
        "PYTHONUNBUFFERED": "1",
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
        "NCCL_NVLS_ENABLE": environment.get("NCCL_NVLS_ENABLE") or str(int(nvlink)),
        "MASTER_ADDR": head,
        "AGENT_SERVER_URL": str(options.agent.agent_server_url),
        "AGENT_MODEL_NAME": options.agent.agent_model_name,
        "HARBOR_TASKS_DIR": str(options.files.harbor_tasks_dir),
        "AGENT_TRIAL_TIMEOUT": f"{DEFAULT_TRIAL_TIMEOUT:g}",
        "MAX_CONSECUTIVE_DISCARDS": str(options.job.max_consecutive_discards),
        **({"TRACES_DIR": traces} if traces else {}),
        **({"MILES_HOST_IP": options.machines.miles_host_ip} if options.machines.miles_host_ip else {}),
        **recipe_environment,
        **{name: environment[name] for name in FORWARDED if environment.get(name)},
        **extra,
    }
    sources = [str(miles.miles_path), str(miles.megatron_path), str(OWN_FOLDER)]
    job["PYTHONPATH"] = _joined(os.pathsep, sources, extra.get("PYTHONPATH"), environment.get("PYTHONPATH"))
    job["no_proxy"] = _joined(",", ["127.0.0.1", head], extra.get("no_proxy"), environment.get("no_proxy"))
    for name, value in job.items():
        validate_no_credentials(f"{name} in the environment", value)
    return job


def _host(ray_address: str | None) -> str | None:
    """Of `http://head:8265` or `head:6379`; `auto` names none."""
    if not ray_address or ray_address in ("auto", "local"):
        return None
    return urlsplit(ray_address if "://" in ray_address else f"//{ray_address}").hostname


def _joined(separator: str, first: Sequence[str], *more: str | None) -> str:
    entries = [*first, *(part for text in more if text for part in text.split(separator))]
    return separator.join(dict.fromkeys(entry for entry in entries if entry))

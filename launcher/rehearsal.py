"""A saved cluster plan as options of the local engine: what stays, what is replaced, what has no counterpart."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from launcher.cli import flag
from launcher.errors import OptionsError
from launcher.extra_env import OPTION_OF_VARIABLE, parse_extra_env
from launcher.local_memory import longest_session
from launcher.saved_plan import OPTION, SavedPlan
from launcher.secrets import HIDDEN, is_secret_name

MOST_NEW_TOKENS = 256  # of a turn: a small model on a CPU writes some 60 a second, for all trials together
_ROLLOUTS = 1
_ASYNC_ROLLOUTS = 2  # the fewest of which one is sampled while another is trained on
_TOKENS = 2048  # of a session, where neither plan nor model says how many it may have
_BOUND = "--max-weight-staleness"
_EXTERNAL_HOST = "MILES_ROUTER_EXTERNAL_HOST"  # where an older Miles has no flag for it
# Of processes that a rehearsal has none of.
_CLUSTER_VARIABLES = (
    *("CUDA_", "GLOO_", "INDEXER_", "MASTER_ADDR", "MILES_", "NCCL_", "NETRC", "NVTE_", "PYTHONPATH"),
    *("PYTHONUNBUFFERED", "PYTORCH_", "RAY_", "SGLANG_", "WANDB_"),
)
_COUNTS = ("rollout_batch_size", "n_samples_per_prompt", "global_batch_size", "rollout_max_response_len")
_ADAPTER = ("lora_rank", "lora_alpha", "lora_dropout", "target_modules")
_CORRECTION = ("tis_clip", "tis_clip_low")
_TAKEN = frozenset(
    flag(option)
    for option in (
        *(*_COUNTS, *_ADAPTER, *_CORRECTION, "max_seq_len", "use_tis", "max_weight_staleness", "pause_generation_mode"),
        *("prompt_data", "rollout_temperature", "debug_rollout_only", "num_rollout", "hf_checkpoint"),
        *("session_server_port", "session_server_workers", "session_server_external_host"),
        *("custom_agent_function_path", "custom_rm_path", "input_key", "metadata_key", "rollout_shuffle"),
    )
)


@dataclass(frozen=True)
class Rehearsal:
    """A plan, the options that it gives the local engine, and (option, its value there, here) of those replaced."""

    plan: SavedPlan
    options: Mapping[str, Any]
    replaced: tuple[tuple[str, str, str], ...]


def rehearse(plan: SavedPlan, given: Mapping[str, Any], environment: Mapping[str, str]) -> Rehearsal:
    """`given` are the options of the command line, which are stronger. Raises OptionsError."""
    _require_secrets(plan, environment)
    wanted = {name: plan.number(flag(name)) for name in _COUNTS}
    checkpoint = given.get("hf_checkpoint") or None
    # An older Miles has no such flag, and its plan says nothing.
    length = plan.number("--max-seq-len") if "--max-seq-len" in plan.flags else None
    lengths = [tokens for tokens in (length, longest_session(checkpoint)) if tokens]
    sequence = int(given.get("max_seq_len") or min(lengths, default=_TOKENS))
    here = {
        "max_seq_len": sequence,
        "rollout_max_response_len": min(wanted["rollout_max_response_len"], MOST_NEW_TOKENS, max(1, sequence // 4)),
        "num_rollout": _ASYNC_ROLLOUTS if "--fully-async" in plan.flags else _ROLLOUTS,
    }
    options: dict[str, Any] = {
        **wanted,
        **here,
        "prompt_data": plan.value("--prompt-data"),
        "rollout_temperature": plan.decimal("--rollout-temperature"),
        "mode": "debug_rollout_only" if "--debug-rollout-only" in plan.flags else "normal",
        "agent_server_url": plan.variable("AGENT_SERVER_URL"),
        "agent_model_name": plan.variable("AGENT_MODEL_NAME"),
        "harbor_tasks_dir": plan.variable("HARBOR_TASKS_DIR"),
        "max_consecutive_discards": plan.count("MAX_CONSECUTIVE_DISCARDS", plan.variable("MAX_CONSECUTIVE_DISCARDS")),
        "session_server_external_host": _external_host(plan),
        "miles_host_ip": plan.environment.get("MILES_HOST_IP"),
        "max_concurrent": wanted["rollout_batch_size"] * wanted["n_samples_per_prompt"],
        "agent_timeout": plan.measure("AGENT_TRIAL_TIMEOUT", plan.variable("AGENT_TRIAL_TIMEOUT")),
        "eval_samples": 0,
        "extra_env_vars": _variables(plan, given),
        **_adapter(plan),
        **_asynchrony(plan),
    }
    there: dict[str, object] = {
        **wanted,
        "max_seq_len": length or "without a bound",
        "num_rollout": plan.number("--num-rollout"),
    }
    replaced = [
        (name, str(there[name]), str(value))
        for name, value in here.items()
        if name not in given and value != there[name]
    ]
    if "max_weight_staleness" in options and _BOUND not in plan.flags:
        replaced.append(("max_weight_staleness", "without a bound", str(options["max_weight_staleness"])))
    model = checkpoint or "SmolLM2-135M-Instruct"
    return Rehearsal(plan, options, (("hf_checkpoint", plan.value("--hf-checkpoint"), model), *replaced))


def notes(rehearsal: Rehearsal) -> list[str]:
    """What a person must know of the rehearsal, in sentences."""
    plan = rehearsal.plan
    replaced = "; ".join(f"{flag(name)} is {here} instead of {there}" for name, there, here in rehearsal.replaced)
    unused = without_counterpart(rehearsal)
    first, last = plan.session_ports
    one = f", and one session server on port {first} stands for {last - first + 1}" if last > first else ""
    return [
        f"Rehearses {plan.run_id} of {plan.launcher}: data, tasks, agents, agent server, addresses and time limits.",
        f"Replaced by what a small model can on this machine: {replaced}{one}.",
        f"Without a counterpart here: of the plan's arguments {len(unused['arguments'])}, of its variables "
        f"{len(unused['variables'])}; the launch file and --dry-run --format json list them.",
    ]


def without_counterpart(rehearsal: Rehearsal) -> dict[str, list[str]]:
    """Names of the plan's `arguments` and `variables` that the local engine has no use for."""
    plan = rehearsal.plan
    return {
        "arguments": [name for name in plan.flags if name not in _TAKEN],
        "variables": [name for name in sorted(plan.environment) if _is_of_the_cluster(name)],
    }


def _require_secrets(plan: SavedPlan, environment: Mapping[str, str]) -> None:
    absent = [name for name in plan.hidden() if not environment.get(name)]
    if absent:
        raise OptionsError(
            f"{OPTION} {plan.path} keeps no value of {', '.join(absent)}; set it in the environment, as for the launch"
        )


def _external_host(plan: SavedPlan) -> str | None:
    values = plan.flags.get("--session-server-external-host", ())
    return values[0] if values else plan.environment.get(_EXTERNAL_HOST)


def _is_of_the_cluster(name: str) -> bool:
    return name.startswith(_CLUSTER_VARIABLES)


def _variables(plan: SavedPlan, given: Mapping[str, Any]) -> tuple[str, ...]:
    """The job's environment as far as agent function and agent server read it; what is given is stronger."""
    kept = {
        name: value
        for name, value in plan.environment.items()
        if not (_is_of_the_cluster(name) or name in OPTION_OF_VARIABLE or is_secret_name(name) or value == HIDDEN)
    }
    try:
        parse_extra_env((json.dumps(kept),))
    except OptionsError as error:
        raise OptionsError(f"{OPTION} {plan.path}: its environment cannot be taken ({error})") from None
    return (json.dumps(kept | parse_extra_env(given.get("extra_env_vars", ()))),)


def _adapter(plan: SavedPlan) -> dict[str, Any]:
    if "--lora-rank" not in plan.flags:
        return {}
    return {
        "lora_rank": plan.number("--lora-rank"),
        "lora_alpha": plan.number("--lora-alpha"),
        "lora_dropout": plan.decimal("--lora-dropout"),
        "target_modules": tuple(plan.value("--target-modules").split(",")),
    }


def _asynchrony(plan: SavedPlan) -> dict[str, Any]:
    if "--fully-async" not in plan.flags:
        return {}
    # Miles takes 0 too; why it cannot be here is a rule between options.
    bound = plan.count(_BOUND, plan.value(_BOUND), least=0) if _BOUND in plan.flags else 1
    corrected = "--use-tis" in plan.flags
    return {
        "pause_generation_mode": plan.value("--pause-generation-mode"),
        "max_weight_staleness": bound,
        "use_tis": corrected,
        **({name: plan.decimal(flag(name)) for name in _CORRECTION} if corrected else {}),
    }

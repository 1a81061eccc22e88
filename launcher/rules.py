"""Rules between options that hold on every engine; a function's name is its rule."""

from __future__ import annotations

import math
from collections.abc import Set

from launcher.addresses import is_address, is_host
from launcher.cli import flag, groups_of
from launcher.errors import OptionsError
from launcher.model_shape import ALL_LINEAR
from launcher.options import (
    Agent,
    Asynchrony,
    CommonOptions,
    Job,
    Local,
    Lora,
    Machines,
    MilesInstall,
    Rollout,
    Tracking,
)
from launcher.secrets import validate_url, without_credentials

_HIGHEST_PORT = 65535
_MOST = 10**9  # of anything that is counted here
_MOST_GPUS = 1024  # of a node


def validate(options: CommonOptions, given: Set[str] = frozenset()) -> None:
    """Raises OptionsError with the numbers and the way out. `given`: options that are no defaults."""
    validate_one_way_to_stop_early(options.job)
    validate_sizes_are_positive(options)
    validate_group_has_an_advantage(options.rollout)
    validate_batches_fill_whole_steps(options.rollout)
    validate_turn_fits_into_session(options.rollout)
    if options.agent.agent_server_url is not None:
        validate_url("--agent-server-url", options.agent.agent_server_url)
    validate_model_name_is_one_word(options.agent)
    for name, _ in groups_of(type(options)):
        group = getattr(options, name)
        if isinstance(group, Lora):
            validate_adapter(group)
        if isinstance(group, MilesInstall):
            gpus = options.machines.num_gpus_per_node
            _require(gpus is not None and 0 < gpus <= _MOST_GPUS, "num_gpus_per_node", gpus, f"1 to {_MOST_GPUS}")
            validate_addresses(options.machines)
            validate_ports(group, options.tracking)
        if isinstance(group, Asynchrony):
            validate_correction(group, given)
            validate_staleness(group, options.job)
        if isinstance(group, Local):
            validate_local_numbers(group)
            validate_kl_has_a_reference(group)
            validate_lock_step_fits(options.rollout, group)


def validate_one_way_to_stop_early(job: Job) -> None:
    both = [
        flag(name)
        for name, on in (
            ("dry_run", job.dry_run),
            ("preflight_only", job.preflight_only),
            ("skip_preflight", job.skip_preflight and job.preflight_only),
        )
        if on
    ]
    if len(both) > 1:
        raise OptionsError(f"{' and '.join(both)} contradict each other; give one")
    if job.format == "json" and not job.dry_run:
        raise OptionsError("--format json is the form of a printed plan; add --dry-run")


def validate_sizes_are_positive(options: CommonOptions) -> None:
    sizes: dict[str, int | float] = {
        "num_nodes": options.machines.num_nodes,
        "max_seq_len": options.rollout.max_seq_len,
        "rollout_max_response_len": options.rollout.rollout_max_response_len,
        "rollout_batch_size": options.rollout.rollout_batch_size,
        "n_samples_per_prompt": options.rollout.n_samples_per_prompt,
        "global_batch_size": options.rollout.global_batch_size,
        "num_rollout": options.rollout.num_rollout,
        "save_interval": options.rollout.save_interval,
        "lr": options.rollout.lr,
        "max_consecutive_discards": options.job.max_consecutive_discards,
    }
    for name, value in sizes.items():
        _require(0 < value <= _MOST, name, value, "a positive number")


def validate_group_has_an_advantage(rollout: Rollout) -> None:
    if rollout.n_samples_per_prompt < 2:
        raise OptionsError(
            "--n-samples-per-prompt 1: a GRPO group of one has no advantage, nothing would be learned; "
            "pass at least 2 (documented: 8)"
        )


def validate_batches_fill_whole_steps(rollout: Rollout) -> None:
    prompts, samples, batch = rollout.rollout_batch_size, rollout.n_samples_per_prompt, rollout.global_batch_size
    total = prompts * samples
    if total % batch:
        raise OptionsError(
            f"global batch {batch} is not {prompts} prompts x {samples} samples = {total}; "
            f"pass --global-batch-size {total}"
        )


def validate_turn_fits_into_session(rollout: Rollout) -> None:
    if rollout.rollout_max_response_len >= rollout.max_seq_len:
        raise OptionsError(
            f"--rollout-max-response-len {rollout.rollout_max_response_len} leaves no room for a prompt in "
            f"--max-seq-len {rollout.max_seq_len}; lower the first or raise the second"
        )


def validate_model_name_is_one_word(agent: Agent) -> None:
    if not agent.agent_model_name or any(character.isspace() for character in agent.agent_model_name):
        raise OptionsError(f"--agent-model-name {agent.agent_model_name!r} is empty or has spaces; documented: model")


def validate_adapter(lora: Lora) -> None:
    for name in ("lora_rank", "lora_alpha"):
        value = getattr(lora, name)
        _require(0 < value <= _MOST, name, value, "a positive number")
    _require(0 <= lora.lora_dropout < 1, "lora_dropout", lora.lora_dropout, "from 0 to below 1")
    if not lora.target_modules:
        raise OptionsError("--target-modules names no module; name some, or all-linear")
    if ALL_LINEAR in lora.target_modules and len(lora.target_modules) > 1:
        others = ", ".join(name for name in lora.target_modules if name != ALL_LINEAR)
        raise OptionsError(
            f"--target-modules {ALL_LINEAR} is every module already; leave out {others or 'one of them'}"
        )


def validate_correction(asynchrony: Asynchrony, given: Set[str]) -> None:
    low, high = asynchrony.tis_clip_low, asynchrony.tis_clip
    unused = sorted(given & {"tis_clip", "tis_clip_low"})
    if unused and not asynchrony.use_tis:
        raise OptionsError(f"{flag(unused[0])} has no effect without --use-tis; add it, or leave this out")
    _require(0 <= low <= 1, "tis_clip_low", low, "0 to 1, which is the weight of a sample of the trained weights")
    wanted = "1 or more, which is the weight of a sample of the trained weights"
    _require(high >= 1 and math.isfinite(high), "tis_clip", high, wanted)


def validate_staleness(asynchrony: Asynchrony, job: Job) -> None:
    most = asynchrony.max_weight_staleness
    if job.engine == "local" and (most is None or most < 1):
        raise OptionsError(
            f"--max-weight-staleness {most} with --engine local: what is sampled while training runs is at least one "
            "update old, so nothing could be trained on; pass 1 or more, or `python run.py --engine local`, which "
            "samples and trains in turns"
        )
    if most is not None:
        _require(0 <= most <= _MOST, "max_weight_staleness", most, "a number of updates, 0 or more")


def validate_addresses(machines: Machines) -> None:
    """The router parses what the services bind as a number; agents put a port of their own behind the host."""
    ip, host = machines.miles_host_ip, machines.session_server_external_host
    if ip is not None and not is_address(ip):
        raise OptionsError(
            f"--miles-host-ip {without_credentials(ip)} is not a numeric address, and the router takes no other; pass "
            "the address that the name resolves to, or 0.0.0.0 for all"
        )
    if host is not None and not is_host(host):
        raise OptionsError(
            f"--session-server-external-host {without_credentials(host)} is not a host; pass a name or an address "
            "alone, without http://, brackets or a port (each session server adds its own)"
        )


def validate_ports(miles: MilesInstall, tracking: Tracking) -> None:
    """Each in range, and no two services on one."""
    first, count = miles.session_server_port, miles.session_server_workers
    _require(
        0 < count <= _HIGHEST_PORT, "session_server_workers", count, "at least 1, and no more than there are ports"
    )
    _require(first >= 1024 and first + count - 1 <= _HIGHEST_PORT, "session_server_port", first,
             f"such that {count} ports from it on lie between 1024 and {_HIGHEST_PORT}")  # fmt: skip
    taken = {first + n: f"session server {n} (--session-server-port {first})" for n in range(count)}
    ports = {"sglang_router_port": miles.sglang_router_port}
    if tracking.use_prometheus and tracking.prometheus_port is not None:
        ports["prometheus_port"] = tracking.prometheus_port
    for name, port in ports.items():
        _require(1024 <= port <= _HIGHEST_PORT, name, port, f"between 1024 and {_HIGHEST_PORT}")
        if port in taken:
            raise OptionsError(f"{flag(name)} {port} is also the port of {taken[port]}; choose another")
        taken[port] = flag(name)


def validate_local_numbers(local: Local) -> None:
    positive = {
        "train_tasks_per_family": local.train_tasks_per_family,
        "max_turns": local.max_turns,
        "max_concurrent": local.max_concurrent,
        "agent_timeout": local.agent_timeout,
        "rollout_temperature": local.rollout_temperature,
        "clip_grad": local.clip_grad,
    }
    for name, value in positive.items():
        _require(value > 0 and math.isfinite(value), name, value, "a positive number")
    not_negative = {
        "heldout_tasks_per_family": local.heldout_tasks_per_family,
        "eval_samples": local.eval_samples,
        "eval_interval": local.eval_interval,
        "threads": local.threads,
        "seed": local.seed,
        "kl_loss_coef": local.kl_loss_coef,
        "warmup_steps": local.warmup_steps,
        "weight_decay": local.weight_decay,
    }
    for name, value in not_negative.items():
        _require(value >= 0 and math.isfinite(value), name, value, "0 or more")
    low, high = local.eps_clip, local.eps_clip_high
    _require(0 < low < 1, "eps_clip", low, "between 0 and 1")
    _require(high >= low and math.isfinite(high), "eps_clip_high", high, f"at least --eps-clip {low}")
    if not local.families:
        raise OptionsError("--families names no family; leave it out for the easy ones, or pass all")


def validate_kl_has_a_reference(local: Local) -> None:
    if local.kl_loss_coef and local.full_finetune:
        raise OptionsError(
            f"--kl-loss-coef {local.kl_loss_coef} with --full-finetune: the reference is the model "
            "with its adapter off, and there is no adapter; leave one of the two out"
        )


def validate_lock_step_fits(rollout: Rollout, local: Local) -> None:
    trials = rollout.rollout_batch_size * rollout.n_samples_per_prompt
    if local.deterministic and local.max_concurrent < trials:
        raise OptionsError(
            f"--deterministic waits for all {trials} trials of a rollout at once "
            f"({rollout.rollout_batch_size} prompts x {rollout.n_samples_per_prompt} samples), "
            f"--max-concurrent is {local.max_concurrent}; pass --max-concurrent {trials}"
        )


def _require(holds: bool, option: str, value: object, wanted: str) -> None:
    if not holds:
        shown = str(value) if not isinstance(value, int) or abs(value) <= _MOST**2 else "(a number of many digits)"
        raise OptionsError(f"{flag(option)} {shown}: must be {wanted}")

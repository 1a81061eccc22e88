"""From resolved options and a recipe to the plan: pure, so that it can be printed, compared and kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from launcher.cli import flag, own_flags
from launcher.miles.argument_changes import read_changes
from launcher.miles.capabilities import Capabilities, adapt, grouped
from launcher.miles.job_environment import job_environment
from launcher.miles.memory import GIB, H200_GIB, estimate
from launcher.miles.placement import as_changed
from launcher.miles.recipe import Recipe, Run
from launcher.options import CommonOptions, MilesInstall, miles_install
from launcher.plan import Plan
from launcher.resolve import Resolved
from launcher.save_folder import TRACKER

WANDB_OPTIONS = ("wandb_project", "wandb_team", "wandb_run_name")


@dataclass(frozen=True)
class Facts:
    """What was looked up before planning."""

    run_id: str
    capabilities: Capabilities
    nvlink: bool
    logged_beyond: int | None  # rollouts that the dumps of this run reach to, where it goes on before them


def wandb_is_on[T: CommonOptions](resolved: Resolved[T], environment: Mapping[str, str]) -> bool:
    """As documented: with a key. Also when an option asks for it, or offline, which needs none."""
    mode = environment.get("WANDB_MODE")
    if mode == "disabled":
        return False
    asked = any(option in resolved.given for option in WANDB_OPTIONS)
    return asked or mode in ("offline", "dryrun") or bool(environment.get("WANDB_API_KEY"))


def train_script(options: CommonOptions, recipe: Recipe) -> str:
    """Path of Miles' driver as the nodes see it."""
    miles = miles_install(options)
    return miles.train_script or str(Path(str(miles.miles_path)) / recipe.script)


def build_plan[T: CommonOptions](
    program: str, resolved: Resolved[T], recipe: Recipe, run: Run, facts: Facts, environment: Mapping[str, str]
) -> Plan:
    """Raises OptionsError where the installed Miles lacks what this plan cannot do without, and for a file of
    `--argument-changes` that cannot be used."""
    options = resolved.options
    miles = miles_install(options)
    wanted = job_environment(
        options, miles, recipe.environment, recipe.traces, nvlink=facts.nvlink, environment=environment
    )
    changes = read_changes(miles.argument_changes, own_flags(type(options)))
    changed, differences = changes.applied(recipe.arguments)
    arguments, job, adapted = adapt(changed, wanted, facts.capabilities)
    save_dir = Path(str(options.files.save_dir))
    trained = None if options.job.mode == "debug_rollout_only" else recipe.training
    more = {**recipe.memory, "checkpoints": checkpoints(options, recipe, run)}
    memory = estimate(recipe.shape, trained, recipe.serving, H200_GIB, more)
    return Plan(
        launcher=program,
        engine="miles",
        run_id=facts.run_id,
        entrypoint=("python3", train_script(options, recipe)),
        arguments=arguments,
        environment=job,
        placement=as_changed(recipe.placement, arguments) if differences else recipe.placement,
        ports=_ports(options, miles, arguments),
        files={
            "save": str(save_dir),
            "load": str(run.start.load_dir or ""),
            "tracker": str(save_dir / TRACKER),
            **({"traces": recipe.traces} if recipe.traces else {}),
            "launch": str(save_dir / "launch" / f"{facts.run_id}.json"),
            "prompt_data": str(options.files.prompt_data),
            "harbor_tasks": str(options.files.harbor_tasks_dir),
            "model": recipe.hf_checkpoint,
            **({"reference": recipe.conversion.folder} if recipe.conversion else {}),
            **{Path(path).stem: path for path in recipe.generated},
        },
        memory=memory,
        notes=(*_notes(resolved, recipe, run, facts, differences + adapted, job), f"Memory: {memory['verdict']}."),
    )


def checkpoints(options: CommonOptions, recipe: Recipe, run: Run) -> dict[str, float]:
    """What a run saves: GiB of one checkpoint, and how many it still makes."""
    count = 0 if options.job.mode == "debug_rollout_only" else -(-run.start.to_go // options.rollout.save_interval)
    return {"gib_each": round(recipe.checkpoint_bytes / GIB, 1), "count": count}


def _ports(options: CommonOptions, miles: MilesInstall, arguments: tuple[str, ...]) -> dict[str, int]:
    flags = dict(grouped(arguments))
    several = "--session-server-workers" in flags or len(flags.get("--session-server-port", ())) > 1
    count = miles.session_server_workers if several else 1
    ports = {
        "session_server": miles.session_server_port,
        "session_server_last": miles.session_server_port + count - 1,
        "router": miles.sglang_router_port,
    }
    if "--prometheus-port" in flags:
        ports["prometheus"] = int(str(options.tracking.prometheus_port))
    return ports


def _notes[T: CommonOptions](
    resolved: Resolved[T], recipe: Recipe, run: Run, facts: Facts, adapted: list[str], job: Mapping[str, str]
) -> list[str]:
    options = resolved.options
    notes = [
        f"{flag(option)} comes from {name} in the environment." for option, name in resolved.from_environment.items()
    ]
    if facts.capabilities.flags is None:
        notes.append(f"No Miles in {miles_install(options).miles_path} here: planned for the newest.")
    notes += [f"{sentence}." for sentence in adapted]
    conversion = recipe.conversion
    if conversion is not None and not conversion.skipped:
        notes.append(
            f"First converts {conversion.hf_checkpoint} to {conversion.folder} on {conversion.nodes} x "
            f"{recipe.layout.gpus_per_node} GPUs, unless that is complete."
        )
    if run.start.load_dir is not None:
        notes.append(f"Goes on from {run.start.load_dir}: {run.start.sentence}.")
    notes += recipe.notes
    notes += _batch_notes(options)
    notes += _wandb_notes(resolved, run, facts)
    if not facts.nvlink and job["NCCL_NVLS_ENABLE"] == "0":
        notes.append(
            "NCCL_NVLS_ENABLE=0: nvidia-smi shows no NVLink on this machine; for nodes that have it pass "
            "--extra-env-vars NCCL_NVLS_ENABLE=1."
        )
    expanded = [name for name, value in sorted(job.items()) if "$" in value]
    if expanded:
        notes.append(f"Ray expands $NAME in {', '.join(expanded)} on the node, and has no way to write a plain $.")
    if recipe.traces is None:
        notes.append("No dumps: verify_progress.py will have nothing to read; pass --save-traces-dir to keep them.")
    if options.job.mode == "debug_rollout_only":
        notes.append("debug_rollout_only: samples and scores, trains nothing.")
    if recipe.layout.nodes > 1 and options.machines.miles_host_ip not in (None, "0.0.0.0", "::"):
        notes.append(
            f"--miles-host-ip {options.machines.miles_host_ip} is the same on all {recipe.layout.nodes} nodes and "
            "belongs to one: pass 0.0.0.0, or leave it out."
        )
    return notes


def _batch_notes(options: CommonOptions) -> list[str]:
    sizes = options.rollout
    total = sizes.rollout_batch_size * sizes.n_samples_per_prompt
    steps = total // sizes.global_batch_size
    if steps == 1 or options.job.mode == "debug_rollout_only":
        return []
    return [
        f"{sizes.rollout_batch_size} prompts x {sizes.n_samples_per_prompt} samples = {total} trajectories with global "
        f"batch {sizes.global_batch_size} make {steps} optimizer steps a rollout: from the second on, samples are "
        f"stale (sampled by older weights); --global-batch-size {total} makes it one."
    ]


def _wandb_notes[T: CommonOptions](resolved: Resolved[T], run: Run, facts: Facts) -> list[str]:
    options = resolved.options
    if not run.wandb:
        return ["W&B is off: no WANDB_API_KEY here, no --wandb-project and no WANDB_MODE=offline."]
    notes: list[str] = []
    if run.start.load_dir is not None:
        first = run.start.done
        last = facts.logged_beyond
        steps = f"steps {first} to {last}" if last is not None and last > first else f"step {first}"
        if last is not None and last >= first:
            notes.append(
                f"W&B: {steps} were logged before the stop and are run again; a W&B run that goes on drops them "
                "silently, since its step counter does not go back: trust the dumps, or start a W&B run of its own "
                f"with another --wandb-run-name than {options.tracking.wandb_run_name}."
            )
        else:
            notes.append(
                f"W&B drops silently every step from {first} on that the stopped run logged after its last "
                "checkpoint; no dumps tell which: trust the dumps of this run, or pass another --wandb-run-name."
            )
    return notes

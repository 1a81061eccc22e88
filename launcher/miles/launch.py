"""`--engine miles` from resolved options to the exit code of its job: plan, preflight, prepare, submit, follow."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from launcher.errors import ExitCode, OptionsError, PreflightError
from launcher.extra_env import parse_extra_env
from launcher.launch_file import write_launch_files, write_texts
from launcher.miles.capabilities import read_capabilities
from launcher.miles.logged import last_dumped_rollout
from launcher.miles.miles_plan import Facts, build_plan, wandb_is_on
from launcher.miles.nvlink import has_nvlink
from launcher.miles.recipe import Build, FindStart, Recipe, Run
from launcher.options import CommonOptions, miles_install
from launcher.output import say
from launcher.plan import Plan, print_plan
from launcher.ray_jobs.address import existing_cluster
from launcher.resolve import Resolved
from launcher.run_id import new_run_id
from launcher.save_folder import held
from swe_agent_function import DEFAULT_TRIAL_TIMEOUT

_LONGEST_TRIAL = 10_000_000  # seconds


def launch[T: CommonOptions](
    program: str, resolved: Resolved[T], build: Build[T], find_start: FindStart[T], environment: Mapping[str, str]
) -> int:
    """Exit code per `ExitCode`: the job's own verdict once it runs. Raises LauncherError before that."""
    address = existing_cluster(resolved.options.job.ray_address, environment)
    plan, recipe = plan_run(program, resolved, build, find_start, environment)
    if resolved.options.job.dry_run:
        print_plan(plan, resolved.options.job.format)
        return ExitCode.SUCCEEDED
    return start(plan, recipe, resolved, environment, address)


def plan_run[T: CommonOptions](
    program: str, resolved: Resolved[T], build: Build[T], find_start: FindStart[T], environment: Mapping[str, str]
) -> tuple[Plan, Recipe]:
    """Reads the save folder and the source of Miles; writes nothing."""
    options = resolved.options
    run = Run(find_start(options), wandb_is_on(resolved, environment), _trial_timeout(options, environment))
    recipe = build(options, run)
    facts = Facts(
        run_id=new_run_id(),
        capabilities=read_capabilities(Path(str(miles_install(options).miles_path))),
        nvlink=has_nvlink(),
        logged_beyond=last_dumped_rollout(recipe.traces) if run.start.load_dir is not None else None,
    )
    return build_plan(program, resolved, recipe, run, facts, environment), recipe


def start[T: CommonOptions](
    plan: Plan, recipe: Recipe, resolved: Resolved[T], environment: Mapping[str, str], address: str | None
) -> int:
    """Checks, and then runs, what was planned. `address`: a cluster that runs already, else None."""
    # The HTTP client and Ray's own take a second to import, which a printed plan need not wait for.
    from launcher.miles.miles_preflight import preflight
    from launcher.miles.prepare import prepare
    from launcher.ray_jobs.cluster import cluster
    from launcher.ray_jobs.job import JobSpec, run_job

    options, job = resolved.options, resolved.options.job
    if not job.skip_preflight:
        preflight(plan, recipe, resolved, environment, address)
    if job.preflight_only:
        return ExitCode.SUCCEEDED
    nodes = recipe.layout.nodes
    if address is None and nodes > 1:
        raise PreflightError(
            f"{nodes} nodes need a Ray cluster that already spans them; start one with `ray start` on every node and "
            "pass --ray-address http://HEAD:8265"
        )
    with ExitStack() as stack:
        stack.enter_context(held(Path(plan.files["save"])))
        write_texts(recipe.generated, "--save-dir")
        write_launch_files(plan)
        say("\n".join(f"note: {note}" for note in plan.notes))
        head, gpus = plan.environment["MASTER_ADDR"], recipe.layout.gpus_per_node
        ray = stack.enter_context(cluster(address, num_gpus=gpus, node_ip=head, keep=job.no_wait))
        verdict = prepare(ray, plan, recipe, options)
        if verdict is not ExitCode.SUCCEEDED:
            return verdict
        spec = JobSpec(
            submission_id=plan.run_id,
            entrypoint=(*plan.entrypoint, *plan.arguments),
            environment=plan.environment,
            metadata={"launcher": plan.launcher, "save_dir": plan.files["save"]},
        )
        return run_job(ray, spec, wait=not job.no_wait, out=sys.stdout)


def _trial_timeout(options: CommonOptions, environment: Mapping[str, str]) -> float:
    seen = {**environment, **parse_extra_env(options.files.extra_env_vars)}
    text = seen.get("AGENT_TRIAL_TIMEOUT") or f"{DEFAULT_TRIAL_TIMEOUT:g}"
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= _LONGEST_TRIAL:
        raise OptionsError(
            f"AGENT_TRIAL_TIMEOUT={text[:40]!r} is not a number of seconds, {_LONGEST_TRIAL:,} at most; correct or "
            "unset it"
        )
    return seconds

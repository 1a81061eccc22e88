"""Preflight of `--engine miles`: which checks concern a plan, and on which machine each runs."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path

from launcher.addresses import own_address
from launcher.checks.agent_names import with_asked
from launcher.checks.agent_server import trial_timeout
from launcher.checks.daytona import asked_minutes, check_daytona_lifetimes, check_server_and_lifetimes
from launcher.checks.key_files import check_no_secrets, key_files
from launcher.checks.network import check_external_host
from launcher.checks.node import CheckpointSpec, NodeSpec, ReferenceSpec, WayBackSpec, check_node
from launcher.checks.node_report import SPEC_VARIABLE, parse_findings
from launcher.checks.prompts import check_held_out, check_prompts
from launcher.checks.save_dir import tracker_text
from launcher.errors import PreflightError
from launcher.miles.job_environment import OWN_FOLDER
from launcher.miles.memory import GIB
from launcher.miles.recipe import Recipe
from launcher.options import CommonOptions, miles_install
from launcher.plan import Plan
from launcher.preflight import LIMIT, Check, Finding, Status, failure, ok, print_findings, run_checks, warning
from launcher.ray_jobs.cluster import cluster
from launcher.ray_jobs.job import JobSpec, job_output
from launcher.resolve import Resolved
from launcher.save_folder import TRACKER, read_tracker

# Of the job's driver and workers; what they import beside these comes with them.
MODULES = ("miles", "megatron.core", "sglang", "httpx")
_NODES_SECONDS = 90.0
_CHECKPOINTS_AT_ONCE = 2  # one stays whole while the next is written; more are the user's to clear away


def preflight[T: CommonOptions](
    plan: Plan, recipe: Recipe, resolved: Resolved[T], environment: Mapping[str, str], address: str | None
) -> None:
    """Prints what was found. `address` is that of a Ray cluster that runs already, None where a head is started here.

    Raises PreflightError when a check failed.
    """
    options = resolved.options
    spec = node_spec(plan, recipe, options)
    rows, interrupted = Path(plan.files["prompt_data"]), threading.Event()
    checks = [
        Check("secrets", lambda: check_no_secrets((*plan.entrypoint, *plan.arguments), plan.environment)),
        Check("memory", lambda: check_memory(plan)),
        Check("start", lambda: check_start(plan)),
        Check("prompt data", lambda: check_rows(rows, options.rollout.rollout_batch_size, address is not None)),
        Check("agent server", lambda: check_service(plan, recipe, options)),
        Check("sandbox lifetimes", lambda: check_lifetimes(plan.environment)),
        Check(
            "this machine" if address is None else "Ray cluster",
            lambda: check_machines(plan, spec, recipe.layout.nodes, address, environment, interrupted),
            LIMIT if address is None else _NODES_SECONDS + LIMIT,
            interrupted,
        ),
    ]
    host = options.machines.session_server_external_host
    if host is not None:
        checks.append(Check("external host", lambda: check_external_host(host, plan.environment["AGENT_SERVER_URL"])))
    findings = resolved.with_origins(run_checks(checks))
    failed = sum(finding.status is Status.FAILURE for finding in findings)
    shown = options.job.preflight_only or failed
    print_findings(findings if shown else [finding for finding in findings if finding.status is not Status.OK])
    if failed:
        raise PreflightError(f"{failed} of {len(findings)} checks failed; nothing was started")


def node_spec(plan: Plan, recipe: Recipe, options: CommonOptions) -> NodeSpec:
    """What each machine of the run must offer."""
    miles, shape, conversion = miles_install(options), recipe.shape, recipe.conversion
    environment, ports = plan.environment, plan.ports
    agent_server = environment["AGENT_SERVER_URL"]
    sessions = (ports["session_server"], ports["session_server_last"])
    rollout = plan.memory["rollout_gib_per_gpu"]["static"]
    trainer = plan.memory.get("trainer_gib_per_gpu", {"total": 0.0})["total"]
    driver = "--train-script" if miles.train_script else "driver in --miles-path"
    checkpoints = plan.memory["checkpoints"]
    save_dir = Path(plan.files["save"])
    saved = min(_CHECKPOINTS_AT_ONCE, checkpoints["count"]) * checkpoints["gib_each"]
    return NodeSpec(
        repository=str(OWN_FOLDER),
        paths={
            "--miles-path": str(miles.miles_path),
            "--megatron-path": str(miles.megatron_path),
            driver: plan.entrypoint[-1],
            "--prompt-data": plan.files["prompt_data"],
        },
        modules=MODULES,
        search_path=tuple(environment["PYTHONPATH"].split(os.pathsep)),
        checkpoints=tuple(
            CheckpointSpec(option, checkpoint, shape.name, shape.hf_fields)
            for option, checkpoint in recipe.checkpoints.items()
        ),
        reference=(
            ReferenceSpec(conversion.folder, not conversion.skipped, shape.name, shape.hf_fields)
            if conversion is not None
            else None
        ),
        key_files={name: str(path) for name, path in key_files(environment).items()},
        writable={"--save-dir": plan.files["save"]} | ({"--save-traces-dir": recipe.traces} if recipe.traces else {}),
        save_dir=plan.files["save"],
        save_dir_resumes=bool(plan.files["load"]) and Path(plan.files["load"]).resolve() == save_dir.resolve(),
        save_dir_tracker=tracker_text(save_dir),
        save_bytes=int(saved * GIB),
        offload_dir=recipe.offload.folder if recipe.offload is not None else None,
        offload_bytes=int(recipe.offload.gib_per_node * GIB) if recipe.offload is not None else 0,
        nodes=recipe.layout.nodes,
        gpus=recipe.layout.gpus_per_node,
        gib_per_gpu=max(rollout, trainer),
        ports={
            "session servers": sessions,
            "router": (ports["router"], ports["router"]),
            **({"Prometheus": (ports["prometheus"], ports["prometheus"])} if "prometheus" in ports else {}),
        },
        agent_server_url=agent_server,
        way_back=WayBackSpec(
            *sessions,
            bind_host=options.machines.miles_host_ip or "0.0.0.0",
            external_host=options.machines.session_server_external_host,
            agent_server_url=agent_server,
            token_file=environment.get("AGENT_SERVER_TOKEN_FILE"),
        ),
        wandb="--use-wandb" in plan.arguments,
    )


def check_memory(plan: Plan) -> Finding:
    """The plan's own estimate."""
    if plan.memory["fits"]:
        return ok("memory", plan.memory["verdict"])
    return failure(
        "memory", plan.memory["verdict"], "use more GPUs, shorter sessions (--max-seq-len), or fewer at a time"
    )


def check_start(plan: Plan) -> Finding:
    """A tracker can outlive the checkpoint that it names."""
    load = plan.files["load"]
    if not load or not Path(load, TRACKER).is_file():
        return ok("start", f"from {load}" if load else "from the beginning")
    rollout = read_tracker("--load-dir", Path(load))
    folder = Path(load, f"iter_{rollout:07d}")
    if not folder.is_dir() or not any(folder.iterdir()):
        return failure(
            "start",
            f"{TRACKER} in {load} says {rollout}, and {folder.name} is not there or empty",
            "restore it, or write the id of a checkpoint that is there into the tracker",
        )
    return ok("start", f"after rollout {rollout} of {load}")


def check_rows(rows: Path, batch: int, elsewhere: bool) -> list[Finding]:
    """Where the rows lie with a cluster only, its nodes look whether the file is there."""
    if elsewhere and not rows.exists():
        sentence = f"{rows} is not on this machine, so its rows are not checked"
        return [warning("prompt data", sentence, "launch on a node")]
    return [check_prompts(rows, None, batch), *check_held_out(rows)]


def check_service(plan: Plan, recipe: Recipe, options: CommonOptions) -> list[Finding]:
    """The agent server, and its tasks against the prompts'."""
    url, environment = plan.environment["AGENT_SERVER_URL"], plan.environment
    trials = options.rollout.rollout_batch_size * options.rollout.n_samples_per_prompt
    findings = check_server_and_lifetimes(url, trials, recipe.most_in_flight, environment)
    return with_asked(findings, url, Path(plan.files["prompt_data"]), environment)


def check_lifetimes(environment: Mapping[str, str]) -> list[Finding]:
    """Of sandboxes, where the job asks for any; what is no number is said by the check of the agent server."""
    try:
        stop, delete = asked_minutes(environment)
    except ValueError:
        return []
    if stop is None:
        return []
    return [check_daytona_lifetimes(stop, delete, trial_timeout(environment))]


def check_machines(
    plan: Plan,
    spec: NodeSpec,
    nodes: int,
    address: str | None,
    environment: Mapping[str, str],
    interrupted: threading.Event,
) -> list[Finding]:
    """On this machine where it will be the head, else on every node of the cluster, in a job of its own."""
    if address is None:
        alone = (
            [ok("Ray", "a head is started on this machine and stopped with the job")]
            if nodes == 1
            else [
                failure(
                    "Ray",
                    f"{nodes} nodes are planned and no cluster is named",
                    "start one with `ray start` on every node and pass --ray-address http://HEAD:8265",
                )
            ]
        )
        return alone + check_node(spec, True, own_address(plan.environment.get("MILES_HOST_IP")), environment)
    job = JobSpec(
        submission_id=f"{plan.run_id}-preflight",
        entrypoint=("python3", "-m", "launcher.checks.on_nodes"),
        environment={**plan.environment, SPEC_VARIABLE: spec.to_json()},
        metadata={"launcher": plan.launcher},
    )
    with cluster(address, num_gpus=0, node_ip="") as ray:
        _, log = job_output(ray, job, timeout=_NODES_SECONDS, interrupted=interrupted)
    return parse_findings(log)

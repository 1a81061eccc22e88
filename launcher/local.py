"""`--engine local` from resolved options to its exit code: plan, checks, launch file, loop."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from launcher.errors import ExitCode, PreflightError
from launcher.launch_file import write_launch_files
from launcher.local_run import build_config, build_plan
from launcher.miles.recipe import SandboxLifetime
from launcher.options import LocalOptions
from launcher.output import say
from launcher.plan import print_plan
from launcher.preflight import Status, print_findings
from launcher.resolve import Resolved
from launcher.run_id import new_run_id
from launcher.save_folder import held


def launch[T: LocalOptions](
    program: str,
    resolved: Resolved[T],
    environment: Mapping[str, str],
    sandboxes: Callable[[float], SandboxLifetime] | None = None,
) -> int:
    """Exit code per `ExitCode`; what the loop returns once it has started.

    `sandboxes`: a provider's lifetimes for trials of so many seconds, where the rehearsed launcher uses one.
    """
    job = resolved.options.job
    config, start = build_config(resolved, new_run_id(), environment)
    replaced = sandboxes is not None and config.agent_server_url is None
    plan = build_plan(program, resolved, config, start, environment, daytona_replaced=replaced)
    if job.dry_run:
        print_plan(plan, job.format)
        return ExitCode.SUCCEEDED
    if not job.skip_preflight:
        # The HTTP client alone would double the time of --help.
        from launcher.local_preflight import preflight

        findings = preflight(config, resolved, environment, sandboxes if replaced else None)
        failed = [finding for finding in findings if finding.status is Status.FAILURE]
        print_findings(findings if job.preflight_only else [f for f in findings if f.status is not Status.OK])
        if failed:
            raise PreflightError(f"{len(failed)} of {len(findings)} checks failed; nothing was started")
    if job.preflight_only:
        return ExitCode.SUCCEEDED
    with held(config.save_dir):
        write_launch_files(plan)
        say("\n".join(f"note: {note}" for note in plan.notes))
        # Before the import: OpenMP reads its settings when it is loaded.
        os.environ.update({name: value for name, value in plan.environment.items() if name != "WANDB_API_KEY"})
        # Only now: PyTorch takes seconds to import, and everything above answers at once.
        from local_engine.loop import run

        return run(config)

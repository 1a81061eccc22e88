"""Converts the checkpoint before training, as a Ray job of its own; what is complete is left alone."""

from __future__ import annotations

import sys
from pathlib import Path

from launcher.checks.references import is_converted, write_marker
from launcher.errors import ExitCode
from launcher.miles.conversion import conversion_command
from launcher.miles.recipe import Recipe
from launcher.options import CommonOptions
from launcher.plan import Plan
from launcher.ray_jobs.cluster import Cluster
from launcher.ray_jobs.job import JobSpec, run_job


def prepare(ray: Cluster, plan: Plan, recipe: Recipe, options: CommonOptions) -> ExitCode:
    """SUCCEEDED when the reference is there; else the conversion's own verdict."""
    conversion = recipe.conversion
    if conversion is None or conversion.skipped:
        return ExitCode.SUCCEEDED
    folder, fields = Path(conversion.folder), recipe.shape.hf_fields
    complete, reason = is_converted(folder, fields, recipe.shape.name)
    if complete:
        print(f"reference: {reason}", file=sys.stderr)
        return ExitCode.SUCCEEDED
    print(f"converting {conversion.hf_checkpoint} to {folder} ({reason})", file=sys.stderr)
    job = JobSpec(
        submission_id=f"{plan.run_id}-prepare",
        entrypoint=conversion_command(conversion, recipe.shape, options),
        environment=plan.environment,
        metadata={"launcher": plan.launcher},
    )
    verdict = run_job(ray, job, wait=True, out=sys.stdout)
    if verdict is not ExitCode.SUCCEEDED:
        return verdict
    complete, reason = is_converted(folder, fields, recipe.shape.name)
    if not complete and not folder.exists():
        print(f"{folder} was converted on a node and cannot be seen from here", file=sys.stderr)
        return ExitCode.SUCCEEDED
    if not complete:
        print(f"the conversion ended without error, but {reason}", file=sys.stderr)
        return ExitCode.FAILED
    write_marker(folder, conversion.hf_checkpoint, fields)
    return ExitCode.SUCCEEDED

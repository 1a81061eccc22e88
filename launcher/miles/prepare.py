"""Converts the checkpoint before training, as a Ray job of its own; what is complete is left alone."""

from __future__ import annotations

import sys
from pathlib import Path

from launcher.checks.references import is_converted
from launcher.errors import ExitCode
from launcher.miles.conversion import conversion_command
from launcher.miles.recipe import Recipe
from launcher.options import CommonOptions
from launcher.output import say
from launcher.plan import Plan
from launcher.ray_jobs.cluster import Cluster
from launcher.ray_jobs.job import JobSpec, run_job


def prepare(ray: Cluster, plan: Plan, recipe: Recipe, options: CommonOptions) -> ExitCode:
    """SUCCEEDED when the reference is there; else the conversion's own verdict."""
    conversion = recipe.conversion
    if conversion is None or conversion.skipped:
        return ExitCode.SUCCEEDED
    complete, reason = is_converted(Path(conversion.folder), recipe.shape.hf_fields, recipe.shape.name)
    if complete:
        say(f"reference: {reason}")
        return ExitCode.SUCCEEDED
    # What is not complete here may be so on the nodes: the job looks again before it converts.
    job = JobSpec(
        submission_id=f"{plan.run_id}-prepare",
        entrypoint=conversion_command(conversion, recipe.shape, options),
        environment=plan.environment,
        metadata={"launcher": plan.launcher},
    )
    return run_job(ray, job, wait=True, out=sys.stdout)

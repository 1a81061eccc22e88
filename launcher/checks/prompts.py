"""The prompt data: every row, their tasks, enough for a batch."""

from __future__ import annotations

import os
from pathlib import Path

from launcher.preflight import Finding, failure, first_three, ok

_NAME = "prompt data"


def check_prompts(rows: Path, tasks_dir: Path | None, batch: int) -> Finding:
    """`batch` in prompts; `tasks_dir` None where the task folders are the agent server's affair."""
    from miles_data.findings import DataError
    from miles_data.prompts import load_prompts

    try:
        prompts = load_prompts(rows)
    except DataError as error:
        return failure(_NAME, str(error), "correct the file, or make it with download_and_process_data.py")
    if len(prompts) < batch:
        return failure(
            _NAME,
            f"{rows} has {len(prompts)} prompts, a batch takes {batch}",
            f"pass --rollout-batch-size {max(len(prompts), 1)} or less (and the --global-batch-size that goes with it)",
        )
    if tasks_dir is None:
        return ok(_NAME, f"{len(prompts)} prompts in {rows}; their tasks are the agent server's")
    if not os.path.isdir(tasks_dir):
        return failure(_NAME, f"--harbor-tasks-dir {tasks_dir} is not a folder", "name the folder that holds the tasks")
    missing = [
        prompt.instance_id for prompt in prompts if not os.path.isfile(tasks_dir / prompt.instance_id / "task.toml")
    ]
    if missing:
        return failure(
            _NAME,
            f"{len(missing)} of {len(prompts)} tasks of {rows} are not in {tasks_dir}: {first_three(missing)}",
            "name the folder that these prompts were made from with --harbor-tasks-dir, or make the prompts again",
        )
    return ok(_NAME, f"{len(prompts)} prompts, {len(prompts)} tasks in {tasks_dir}")


def read_instance_ids(rows: Path) -> tuple[str, ...]:
    """Of every row; none where the file is not in order, which `check_prompts` reports."""
    from miles_data.findings import DataError
    from miles_data.prompts import load_prompts

    try:
        return tuple(prompt.instance_id for prompt in load_prompts(rows))
    except DataError:
        return ()

"""The prompt data: every row, their tasks, enough for a batch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from harbor_service.agent_options import is_text
from launcher.preflight import Finding, failure, first_three, ok, warning

_NAME = "prompt data"


@dataclass(frozen=True)
class Asked:
    """What the rows ask of an agent server; the agent names each once, in the order of the rows."""

    instance_ids: tuple[str, ...] = ()
    agent_names: tuple[str, ...] = ()


def check_prompts(rows: Path, tasks_dir: Path | None, batch: int, *, holds_out: bool = False) -> Finding:
    """`batch` in prompts; `tasks_dir` None where the task folders are the agent server's affair.

    `holds_out`: rows of the split "test" are not trained on, so no batch takes them.
    """
    from miles_data.findings import DataError
    from miles_data.prompts import load_prompts

    try:
        prompts = load_prompts(rows)
    except DataError as error:
        return failure(_NAME, str(error), "correct the file, or make it with download_and_process_data.py")
    trained = sum(not prompt.held_out for prompt in prompts) if holds_out else len(prompts)
    if trained < batch:
        held_out = len(prompts) - trained
        besides = f" besides {held_out} of the split test, which are held out" if held_out else ""
        return failure(
            _NAME,
            f"{rows} has {trained} prompts{besides}, a batch takes {batch}",
            f"pass --rollout-batch-size {trained} or less (and the --global-batch-size that goes with it)"
            if trained
            else "add rows of another split",
        )
    nameless = [
        f"line {prompt.line} ({prompt.metadata['agent_name']!r:.40})"
        for prompt in prompts
        if "agent_name" in prompt.metadata and not is_text(prompt.metadata["agent_name"])
    ]
    if nameless:
        return failure(
            _NAME,
            f"the agent_name of {len(nameless)} of {len(prompts)} rows of {rows} is no name: {first_three(nameless)}",
            "write the agent's name there, or leave the field out for the server's default",
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


def check_held_out(rows: Path) -> list[Finding]:
    """For Miles, which knows no split; nothing where the file is not in order, which `check_prompts` reports."""
    from miles_data.findings import DataError
    from miles_data.prompts import load_prompts

    try:
        prompts = load_prompts(rows)
    except DataError:
        return []
    held_out = sum(prompt.held_out for prompt in prompts)
    if not held_out:
        return []
    return [
        warning(
            _NAME,
            f"{held_out} of {len(prompts)} rows of {rows} are of the split test, and Miles trains on every row",
            "make the file with --split train to keep them out",
        )
    ]


def read_asked(rows: Path) -> Asked:
    """Of every row; nothing where the file is not in order, which `check_prompts` reports."""
    from miles_data.findings import DataError
    from miles_data.prompts import load_prompts

    try:
        prompts = load_prompts(rows)
    except DataError:
        return Asked()
    names = (prompt.metadata.get("agent_name") for prompt in prompts)
    return Asked(
        tuple(prompt.instance_id for prompt in prompts),
        tuple(dict.fromkeys(name for name in names if isinstance(name, str) and name)),
    )

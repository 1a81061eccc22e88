"""A folder of Harbor tasks as a source: one row per task folder, whose name is the instance id.

The folders are read without the harbor package, which a machine that only converts data need not have.
"""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from miles_data.rows import Item, JsonObject, PlainSource, Row, Skipped

_CANARY = re.compile(r"<!--.*canary.*-->|#.*canary.*", re.IGNORECASE)


def _without_canary(text: str) -> str:
    """Drop the leading marker lines that Harbor hides from agents as well, so that both see one prompt."""
    lines = text.split("\n")
    start = 0
    while start < len(lines) and _CANARY.fullmatch(lines[start].strip()):
        start += 1
    while start < len(lines) and not lines[start].strip():
        start += 1
    return "\n".join(lines[start:])


class NotUsable(Exception):
    """The folder is no task for a single-turn record; the message says why."""


def _table(config: JsonObject, name: str) -> JsonObject:
    value = config.get(name, {})
    if not isinstance(value, dict):
        raise NotUsable(f"invalid task: [{name}] of task.toml is no table")
    return cast(JsonObject, value)


def read_task(folder: Path) -> JsonObject:
    """The row of a task folder. Raises NotUsable."""
    try:
        config: dict[str, Any] = tomllib.loads((folder / "task.toml").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise NotUsable(f"invalid task: task.toml cannot be read ({error})") from error
    if config.get("steps"):
        raise NotUsable("multi-step task: one prompt cannot stand for its steps")
    if not _table(config, "environment").get("docker_image") and not (folder / "environment").is_dir():
        raise NotUsable("invalid task: neither environment/ nor a docker_image")
    try:
        instruction = (folder / "instruction.md").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NotUsable(f"invalid task: instruction.md cannot be read ({error})") from error
    row: JsonObject = {"instance_id": folder.name, "instruction": _without_canary(instruction)}
    name = _table(config, "task").get("name")
    if name is not None:
        row["task_name"] = name
    return row | {"metadata": _table(config, "metadata")}


def is_tasks_folder(folder: Path) -> bool:
    """Whether any direct subfolder holds a task.toml."""
    return any((child / "task.toml").is_file() for child in folder.iterdir())


@dataclass
class HarborTasks(PlainSource):
    """Task folders in the order of their names. Multi-step and invalid ones are listed and left out."""

    folder: Path

    def rows(self) -> Iterator[Item]:
        children = sorted(self.folder.iterdir())
        self.meter.total = len(children)
        for child in children:
            if not child.is_dir() or child.name.startswith("."):
                continue
            try:
                yield Row(child.name, read_task(child))
            except NotUsable as reason:
                yield Skipped(child.name, str(reason), listed=True)

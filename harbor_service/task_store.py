"""The task folders: from an instance_id to its folder, and how long the longest trial may take."""

# pyright: reportMissingTypeStubs=false
# Harbor is typed but has no marker file that says so.

import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from harbor.models.task.config import EnvironmentConfig, VerifierConfig
from harbor.models.task.task import Task

_TASK_FILE: Final = "task.toml"
_LONGEST_NAME: Final = 255  # bytes, what a file system takes
_BUILD_SECONDS: Final = EnvironmentConfig().build_timeout_sec
_VERIFIER_SECONDS: Final = VerifierConfig().timeout_sec


@dataclass(frozen=True)
class TaskSummary:
    """How many tasks there are and the longest of their limits, in seconds."""

    count: int
    build_seconds: float
    verifier_seconds: float  # all steps of a task together
    steps: int  # agent runs in one trial


class TaskStore:
    """Task folders directly under `root`; a folder is a task when it holds task.toml."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._summary: tuple[int, TaskSummary] | None = None

    def find(self, instance_id: str) -> Path | None:
        """The folder of `instance_id`, None where there is none; a name that is a path never reaches the disk."""
        if instance_id in ("", ".", "..") or "/" in instance_id or "\0" in instance_id:
            return None
        if len(os.fsencode(instance_id.encode("utf-8", "replace").decode())) > _LONGEST_NAME:
            return None
        try:
            folder = self.root / instance_id
            return folder if (folder / _TASK_FILE).is_file() else None
        except ValueError:  # a lone surrogate has no file name
            return None

    def names(self) -> list[str]:
        """The instance_ids of all tasks, sorted."""
        return sorted(entry.name for entry in os.scandir(self.root) if Path(entry.path, _TASK_FILE).is_file())

    def why_broken(self, folder: Path) -> str | None:
        """What Harbor has against the task in `folder`, None where it loads."""
        try:
            Task(folder)
        except (OSError, ValueError, RuntimeError, TypeError, KeyError) as error:
            return f"{type(error).__name__}: {error}"[:500]
        return None

    def check(self, instance_ids: Iterable[str]) -> tuple[list[str], dict[str, str]]:
        """Ids without a folder, and ids whose folder Harbor cannot load with the reason."""
        missing: list[str] = []
        broken: dict[str, str] = {}
        for instance_id in dict.fromkeys(instance_ids):
            folder = self.find(instance_id)
            if folder is None:
                missing.append(instance_id)
            elif reason := self.why_broken(folder):
                broken[instance_id] = reason
        return missing, broken

    def summary(self) -> TaskSummary:
        """Count and longest limits, read again when a folder has come or gone."""
        stamp = self.root.stat().st_mtime_ns
        if self._summary is None or self._summary[0] != stamp:
            self._summary = (stamp, self._scan())
        return self._summary[1]

    def _scan(self) -> TaskSummary:
        count, build, verifier, steps = 0, 0.0, 0.0, 1
        for entry in os.scandir(self.root):
            try:
                text = Path(entry.path, _TASK_FILE).read_text()
            except OSError:  # no folder of a task
                continue
            count += 1
            try:
                task = tomllib.loads(text)
            except ValueError:  # reported by /tasks, and by the trial that meets it
                continue
            task_steps = cast("list[Any]", task.get("steps") or [{}])
            build = max(build, _seconds(task, "environment", "build_timeout_sec", _BUILD_SECONDS))
            own = _seconds(task, "verifier", "timeout_sec", _VERIFIER_SECONDS)
            verifier = max(verifier, sum(_seconds(step, "verifier", "timeout_sec", own) for step in task_steps))
            steps = max(steps, len(task_steps))
        if not count:
            build, verifier = _BUILD_SECONDS, _VERIFIER_SECONDS
        return TaskSummary(count, build, verifier, steps)


def _seconds(task: object, table: str, key: str, default: float) -> float:
    section: object = cast("Mapping[str, object]", task).get(table) if isinstance(task, dict) else None
    value: object = cast("Mapping[str, object]", section).get(key) if isinstance(section, dict) else None
    return float(value) if isinstance(value, int | float) else default

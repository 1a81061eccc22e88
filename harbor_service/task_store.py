"""The task folders: from an instance_id to its folder, and how long the longest trial may take."""

# pyright: reportMissingTypeStubs=false
# Harbor is typed but has no marker file that says so.

import math
import os
import threading
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from harbor.models.task.config import EnvironmentConfig, VerifierConfig
from harbor.models.task.task import Task

from harbor_service.task_rules import TaskBroken, refuse_unfit

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
        self._scanning = threading.Lock()

    def find(self, instance_id: str) -> Path | None:
        """The folder of `instance_id`, None where there is none; a name that is a path never reaches the disk."""
        if instance_id in ("", ".", "..") or "/" in instance_id or "\0" in instance_id:
            return None
        if len(os.fsencode(instance_id.encode("utf-8", "replace").decode())) > _LONGEST_NAME:
            return None
        folder = self.root / instance_id
        return folder if _is_task(folder) else None

    def names(self) -> list[str]:
        """The instance_ids of all tasks, sorted."""
        return sorted(entry.name for entry in os.scandir(self.root) if _is_task(entry.path))

    def why_broken(self, folder: Path) -> str | None:
        """What Harbor or this server has against the task in `folder`, None where it can run."""
        try:
            refuse_unfit(Task(folder).config)
        except TaskBroken as error:
            return str(error)
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
        """Count and longest limits, read again when a folder has come or gone: seconds for ten thousand tasks."""
        with self._scanning:
            stamp = self.root.stat().st_mtime_ns
            if self._summary is None or self._summary[0] != stamp:
                self._summary = (stamp, self._scan())
            return self._summary[1]

    def _scan(self) -> TaskSummary:
        count, build, verifier, steps = 0, 0.0, 0.0, 1
        for entry in os.scandir(self.root):
            try:
                content = Path(entry.path, _TASK_FILE).read_bytes()
            except OSError:  # no folder of a task
                continue
            count += 1
            try:
                task = tomllib.loads(content.decode())
            except (ValueError, RecursionError):  # reported by /tasks, and by the trial that meets it
                continue
            listed: object = task.get("steps")
            task_steps = cast("list[object]", listed) if isinstance(listed, list) and listed else [None]
            build = max(build, _seconds(task, "environment", "build_timeout_sec", _BUILD_SECONDS))
            own = _seconds(task, "verifier", "timeout_sec", _VERIFIER_SECONDS)
            verifier = max(verifier, sum(_seconds(step, "verifier", "timeout_sec", own) for step in task_steps))
            steps = max(steps, len(task_steps))
        if not count:
            build, verifier = _BUILD_SECONDS, _VERIFIER_SECONDS
        return TaskSummary(count, build, verifier, steps)


def _is_task(folder: str | os.PathLike[str]) -> bool:
    # Not Path.is_file, which raises for a folder that may not be entered; half a surrogate pair has no file name.
    return os.path.isfile(os.path.join(folder, _TASK_FILE))


def _seconds(task: object, table: str, key: str, default: float) -> float:
    section: object = cast("Mapping[str, object]", task).get(table) if isinstance(task, dict) else None
    value: object = cast("Mapping[str, object]", section).get(key) if isinstance(section, dict) else None
    if not isinstance(value, int | float):
        return default
    try:
        return float(value)
    except OverflowError:  # TOML has whole numbers of any size
        return math.inf

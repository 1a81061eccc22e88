"""A Harbor registry file: a list of datasets, each a list of tasks in folders or git repositories."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, cast

from miles_data.findings import DataError
from miles_data.harbor_tasks import NotUsable, read_task
from miles_data.json_array import JsonArray
from miles_data.optional_package import optional_package
from miles_data.rows import Broken, Item, JsonObject, Meter, PlainSource, Row, Skipped


def is_registry(path: Path) -> bool:
    """Whether the first item of a JSON array is a dataset of a registry."""
    first = next(JsonArray(path).rows(), None)
    return isinstance(first, Row) and {"name", "version"} <= first.fields.keys() and _is_list(first.fields.get("tasks"))


def _is_list(value: object) -> bool:
    return isinstance(value, list)


@dataclass
class RegistryTasks(PlainSource):
    """The tasks of one dataset in the order of the file.

    A task folder is looked for in `tasks_dir`, then at the entry's own path (as Harbor does: from the working folder;
    else from the folder of the registry). Of a git repository it comes from Harbor's cache, which the harbor package
    fills.
    """

    path: Path
    dataset: JsonObject
    tasks_dir: Path | None

    def rows(self) -> Iterator[Item]:
        entries = cast(list[JsonObject], self.dataset["tasks"])
        cached = self._from_git([entry for entry in entries if entry.get("git_url") and not self._in_tasks_dir(entry)])
        for entry in entries:
            name = _folder_name(entry)
            folder = self._in_tasks_dir(entry) or cached.get(_key(entry)) or self._local(entry)
            try:
                fields = read_task(folder) | {"instance_id": name}
            except NotUsable as reason:
                yield Skipped(name, str(reason), listed=True)
                continue
            own = {key: value for key, value in entry.items() if key != "name" and value is not None}
            dataset = f"{self.dataset['name']}@{self.dataset['version']}"
            yield Row(name, fields | own | {"registry_name": entry.get("name", name), "dataset": dataset})

    def _in_tasks_dir(self, entry: JsonObject) -> Path | None:
        folder = self.tasks_dir / _folder_name(entry) if self.tasks_dir else None
        return folder if folder and (folder / "task.toml").is_file() else None

    def _local(self, entry: JsonObject) -> Path:
        path = Path(entry["path"]).expanduser()
        return path if path.is_absolute() or path.is_dir() else self.path.parent / path

    def _from_git(self, entries: list[JsonObject]) -> dict[tuple[str, ...], Path]:
        if not entries:
            return {}
        import asyncio
        import subprocess

        purpose = f"fetching {len(entries)} git tasks of {self.path}"
        client = optional_package("harbor.tasks.client", "harbor", purpose)
        ids = optional_package("harbor.models.task.id", "harbor", purpose)
        try:
            parts = ("git_url", "git_commit_id", "path")
            wanted = [ids.GitTaskId(**{part: entry.get(part) for part in parts}) for entry in entries]
            result: Any = asyncio.run(client.TaskClient().download_tasks(wanted))
        except (OSError, ValueError, RuntimeError, subprocess.SubprocessError) as error:
            cause = " ".join(str(error).split())
            what = f"the git tasks of {self.path} cannot be fetched: {cause}"
            raise DataError(f"{what}; where their folders are here already, name them with --tasks-dir") from error
        return {_key(entry): Path(path) for entry, path in zip(entries, result.paths, strict=True)}


def _key(entry: JsonObject) -> tuple[str, ...]:
    return tuple(str(entry.get(part)) for part in ("git_url", "git_commit_id", "path"))


def _folder_name(entry: JsonObject) -> str:
    return PurePosixPath(entry["path"]).name


def open_registry(path: Path, wanted: str | None, tasks_dir: Path | None) -> RegistryTasks:
    """One dataset of a registry file: `wanted` is its name or name@version. Raises DataError."""
    datasets: dict[str, JsonObject] = {}
    for item in JsonArray(path).rows():
        if not isinstance(item, Row):
            problem = item.finding if isinstance(item, Broken) else item
            raise DataError(f"{path} is no Harbor registry: {problem}")
        _check_dataset(path, item)
        datasets[f"{item.fields['name']}@{item.fields['version']}"] = item.fields
    if wanted is not None:
        chosen = [name for name in datasets if wanted in (name, name.rpartition("@")[0])]
    else:
        chosen = list(datasets)
    if len(chosen) != 1:
        what = f"{path}#{wanted} names {len(chosen)} datasets" if wanted else f"{path} holds {len(chosen)} datasets"
        raise DataError(f"{what}; choose one of them with --input {path}#NAME@VERSION: {', '.join(datasets)}")
    dataset = datasets[chosen[0]]
    return RegistryTasks(path, dataset, tasks_dir, meter=Meter(len(dataset["tasks"])))


def _check_dataset(path: Path, item: Row) -> None:
    tasks: object = item.fields.get("tasks")
    if not isinstance(tasks, list) or not {"name", "version"} <= item.fields.keys():
        raise DataError(f"{path} is no Harbor registry: {item.place} has no name, version or list of tasks")
    for number, task in enumerate(cast(list[object], tasks), 1):
        fields = cast(JsonObject, task) if isinstance(task, dict) else JsonObject()
        if not isinstance(fields.get("path"), str) or not _folder_name(fields):
            raise DataError(f"{path} is no Harbor registry: task {number} of {item.fields['name']} has no path")

"""From `--input` to the reader of it."""

from pathlib import Path

from miles_data.findings import DataError
from miles_data.harbor_tasks import HarborTasks, is_tasks_folder
from miles_data.json_lines import JsonLines
from miles_data.rows import Source

SUPPORTED = "a folder of Harbor task folders (each with a task.toml), or a .jsonl file"


def open_source(given: str) -> Source:
    """The reader for an input. Raises DataError that says what was found and what is supported."""
    path = Path(given)
    if path.is_dir():
        if is_tasks_folder(path):
            return HarborTasks(path)
        hint = " (it is a task folder itself: give the folder above it)" if (path / "task.toml").is_file() else ""
        raise DataError(f"no subfolder of {path} holds a task.toml{hint}; supported: {SUPPORTED}")
    if not path.exists():
        raise DataError(f"the input {path} does not exist; supported: {SUPPORTED}")
    if path.suffix == ".jsonl":
        return JsonLines(path)
    raise DataError(f"the input {path} has an ending that no reader knows; supported: {SUPPORTED}")

"""From `--input` to the reader of it."""

import re
from pathlib import Path

from miles_data import hugging_face
from miles_data.data_file import open_data_file
from miles_data.findings import DataError
from miles_data.harbor_registry import is_registry, open_registry
from miles_data.harbor_tasks import HarborTasks, is_tasks_folder
from miles_data.json_lines import JsonLines
from miles_data.rows import Source

SUPPORTED = (
    "a .jsonl, .json or .csv file (also .gz, .zst), a .parquet file, a pipe of JSON lines, a folder of Harbor task "
    "folders, a Harbor registry file, the name of a Hugging Face data set or a folder of one"
)
_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")


def open_source(given: str, split: str | None, tasks_dir: Path | None) -> Source:
    """The reader for an input. `#part` at its end names a configuration of a data set or a dataset of a registry.

    Raises DataError that says what was found and what is supported, and OSError.
    """
    path, part = Path(given), None
    if "#" in given and not path.exists():
        head, _, part = given.rpartition("#")
        path = Path(head)
    if given == "-":
        path = Path("/dev/stdin")
    if path.is_dir():
        return _open_folder(path, part, split)
    if not path.exists():
        return _open_name(str(path), part, split)
    if not path.is_file():
        return JsonLines(path)
    if path.suffix == ".json" and is_registry(path):
        return open_registry(path, part, tasks_dir)
    if part is not None:
        raise DataError(f"#{part} after {path} has no meaning: it is no Harbor registry and no data set")
    if path.is_symlink() and str(path).startswith(("/dev/", "/proc/")):
        return JsonLines(path)
    return open_data_file(path)


def _open_folder(path: Path, part: str | None, split: str | None) -> Source:
    if is_tasks_folder(path):
        return HarborTasks(path)
    if hugging_face.is_saved(path):
        return hugging_face.open_saved(path, split)
    if (path / "task.toml").is_file():
        raise DataError(f"{path} is a task folder itself: give the folder above it")
    if hugging_face.holds_data_files(path):
        return hugging_face.open_dataset(str(path), part, split)
    raise DataError(f"no subfolder of {path} holds a task.toml, and it holds no data files; supported: {SUPPORTED}")


def _open_name(name: str, part: str | None, split: str | None) -> Source:
    # A name with the ending of a file is a typing error in a path, not a data set.
    if _HUB_NAME.fullmatch(name) and not name.endswith((".jsonl", ".json", ".csv", ".parquet", ".gz", ".zst", ".txt")):
        return hugging_face.open_dataset(name, part, split)
    raise DataError(f"the input {name} does not exist; supported: {SUPPORTED}")

"""The reference in Megatron's torch_dist format: whether a conversion is complete, and of which model."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

from disk.atomic_file import atomic_file
from disk.regular_file import is_filled, open_regular
from launcher.checks.checkpoints import difference_of, read_object
from launcher.checks.save_dir import tracker_text
from launcher.preflight import Finding, failure, first_three, ok
from launcher.save_folder import TRACKER

MARKER = "converted_from.json"
RELEASE = "release"
_COMMON = "common.pt"
_TABLE = ".metadata"  # of tensors and of the files that hold them
_NAME = "reference"
_EMBEDDING = "embedding.word_embeddings.weight"  # [vocabulary, hidden] in Megatron's names


def check_reference(
    folder: Path, will_prepare: bool, expected: Mapping[str, object], model: str = "the recipe's model"
) -> Finding:
    """`will_prepare`: this launcher converts what is not yet converted."""
    converted, reason = is_converted(folder, expected, model)
    if converted:
        return ok(_NAME, reason)
    if foreign := _foreign(folder, expected, model):
        return failure(
            _NAME, f"{foreign}; a conversion would write into it", "name an empty or new folder with --ref-load"
        )
    if not will_prepare:
        return failure(_NAME, reason, "leave --skip-prepare out, or name the converted checkpoint with --ref-load")
    return ok(_NAME, f"{reason}: it will be converted")


def is_converted(folder: Path, expected: Mapping[str, object], model: str = "the recipe's model") -> tuple[bool, str]:
    """Whether the conversion into `folder` is complete and of the right model, and why."""
    tracker = tracker_text(folder)
    if tracker != RELEASE:
        says = f"says {tracker[:40]!r}, not {RELEASE!r}" if tracker is not None else "is not there"
        return False, f"{folder / TRACKER} {says}"
    release = folder / RELEASE
    table = _table(release / _TABLE)
    if missing := _missing(release, table):
        return False, f"{release} lacks {first_three(missing)}: its conversion did not end"
    shape, source, trouble = _shape_of(folder, table)
    told = {field: value for field, value in expected.items() if field in shape}
    if difference := difference_of(shape, told, source, model):
        return False, f"{folder} is of another model: {difference}"
    if told:
        return True, f"{folder} is converted, of {model} by its {', '.join(told)}{trouble}"
    if trouble:
        return False, f"nothing in {folder} says of which model it is{trouble}"
    return True, f"{folder} is converted; nothing in it says of which model"


def write_marker(folder: Path, hf_checkpoint: str, shape: Mapping[str, object]) -> None:
    """Says what `folder` was converted from, after the conversion."""
    with atomic_file(folder / MARKER) as file:
        file.write(json.dumps({"hf_checkpoint": hf_checkpoint, "shape": dict(shape)}, indent=2).encode())


def _missing(release: Path, table: dict[str, Any]) -> list[str]:
    """Files that are not there or empty: the shards by the checkpoint's own table, without one any shard will do."""
    missing = [] if is_filled(release / _COMMON) else [_COMMON]
    descriptions = [release / name for name in ("metadata.json", _TABLE)]
    there = [path for path in descriptions if path.exists()]
    missing += [path.name for path in there or descriptions[:1] if not is_filled(path)]
    shards = _shards(table)
    if not shards:
        return missing if any(map(is_filled, release.glob("*.distcp"))) else [*missing, "*.distcp"]
    return [*missing, *(name for name in sorted(shards) if not is_filled(release / name))]


def _foreign(folder: Path, expected: Mapping[str, object], model: str) -> str:
    """What `folder` holds that a conversion must not touch; empty where there is nothing."""
    if not folder.exists():
        return ""
    if not folder.is_dir():
        return f"{folder} is a file"
    tracker = tracker_text(folder)
    if tracker not in (None, RELEASE):
        return f"{folder} is no reference: its {TRACKER} says {tracker[:40]!r}"
    ours = {TRACKER, MARKER, RELEASE}
    others = sorted(entry.name for entry in folder.iterdir() if entry.name not in ours and entry.name[0] != ".")
    if others:
        return f"{folder} is no reference: it holds {others[0]}"
    shape, source, _ = _shape_of(folder, _table(folder / RELEASE / _TABLE))
    told = {field: value for field, value in expected.items() if field in shape}
    difference = difference_of(shape, told, source, model)
    return f"{folder} is of another model: {difference}" if difference else ""


def _shape_of(folder: Path, table: dict[str, Any]) -> tuple[dict[str, Any], str, str]:
    """The fields that can be told without PyTorch, the file that tells them, and what is wrong with the marker."""
    trouble = ""
    try:
        marked = read_object(folder / MARKER).get("shape")
        if isinstance(marked, dict):
            return cast(dict[str, Any], marked), MARKER, trouble
        trouble = f" ({MARKER} names no shape)"
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        trouble = f" ({MARKER} cannot be read: {error})"
    hidden = _hidden_size(table)
    return ({} if hidden is None else {"hidden_size": hidden}), _TABLE, trouble


class _Part:
    """Holds what a pickled object was made from; nothing of its class is imported or run."""

    def __init__(self, *arguments: object) -> None:
        self.arguments = arguments
        self.state: dict[str, Any] = {}

    def __setstate__(self, state: object) -> None:
        if isinstance(state, dict):
            self.state = cast(dict[str, Any], state)


class _Reader(pickle.Unpickler):
    """A checkpoint is data from elsewhere: every class in it becomes an inert `_Part`."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)

    def find_class(self, module_name: str, global_name: str, /) -> type[_Part]:
        del module_name, global_name
        return _Part

    def persistent_load(self, pid: object, /) -> None:
        del pid


def _table(path: Path) -> dict[str, Any]:
    """What PyTorch's checkpoint says of itself; empty where that cannot be told."""
    try:
        with open_regular(path) as file:
            return cast(_Part, _Reader(file).load()).state
    except (OSError, pickle.UnpicklingError, EOFError, LookupError, MemoryError):
        return {}
    except (ArithmeticError, AttributeError, RecursionError, TypeError, ValueError):  # bytes that are no pickle
        return {}


def _shards(table: dict[str, Any]) -> set[str]:
    """Names of the files that hold the tensors; none where the table does not tell."""
    stored = table.get("storage_data")
    if not isinstance(stored, dict):
        return set()
    parts = cast(dict[object, object], stored).values()
    names = [part.state.get("relative_path") for part in parts if isinstance(part, _Part)]
    return {name for name in names if isinstance(name, str)}


def _hidden_size(table: dict[str, Any]) -> int | None:
    """Second dimension of the word embeddings."""
    try:
        (dimensions,) = table["state_dict_metadata"][_EMBEDDING].state["size"].arguments
        return int(dimensions[1])
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None

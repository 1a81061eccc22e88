"""The reference in Megatron's torch_dist format: whether a conversion is complete, and of which model."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

from disk.atomic_file import atomic_file
from launcher.checks.checkpoints import difference_of, read_object
from launcher.preflight import Finding, failure, ok
from launcher.save_folder import TRACKER

MARKER = "converted_from.json"
RELEASE = "release"
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
    tracker = _tracker(folder)
    if tracker != RELEASE:
        says = f"says {tracker[:40]!r}, not {RELEASE!r}" if tracker is not None else "is not there"
        return False, f"{folder / TRACKER} {says}"
    release = folder / RELEASE
    missing = [name for name in ("common.pt",) if not (release / name).is_file()]
    if not any((release / name).is_file() for name in ("metadata.json", ".metadata")):
        missing.append("metadata.json")
    if not any(release.glob("*.distcp")):
        missing.append("*.distcp")
    if missing:
        return False, f"{release} lacks {', '.join(missing)}: its conversion did not end"
    shape, source = _shape_of(folder)
    told = {field: value for field, value in expected.items() if field in shape}
    if difference := difference_of(shape, told, source, model):
        return False, f"{folder} is of another model: {difference}"
    if not told:
        return True, f"{folder} is converted; nothing in it says of which model"
    return True, f"{folder} is converted, of {model} by its {', '.join(told)}"


def write_marker(folder: Path, hf_checkpoint: str, shape: Mapping[str, object]) -> None:
    """Says what `folder` was converted from, after the conversion."""
    with atomic_file(folder / MARKER) as file:
        file.write(json.dumps({"hf_checkpoint": hf_checkpoint, "shape": dict(shape)}, indent=2).encode())


def _tracker(folder: Path) -> str | None:
    try:
        return (folder / TRACKER).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _foreign(folder: Path, expected: Mapping[str, object], model: str) -> str:
    """What `folder` holds that a conversion must not touch; empty where there is nothing."""
    if not folder.exists():
        return ""
    if not folder.is_dir():
        return f"{folder} is a file"
    tracker = _tracker(folder)
    if tracker not in (None, RELEASE):
        return f"{folder} is no reference: its {TRACKER} says {tracker[:40]!r}"
    ours = {TRACKER, MARKER, RELEASE}
    others = sorted(entry.name for entry in folder.iterdir() if entry.name not in ours and entry.name[0] != ".")
    if others:
        return f"{folder} is no reference: it holds {others[0]}"
    shape, source = _shape_of(folder)
    told = {field: value for field, value in expected.items() if field in shape}
    difference = difference_of(shape, told, source, model)
    return f"{folder} is of another model: {difference}" if difference else ""


def _shape_of(folder: Path) -> tuple[dict[str, Any], str]:
    """The fields that can be told without PyTorch, and the file that tells them."""
    try:
        marked = read_object(folder / MARKER).get("shape")
    except (OSError, ValueError):
        marked = None
    if isinstance(marked, dict):
        return cast(dict[str, Any], marked), MARKER
    hidden = _hidden_size(folder / RELEASE / ".metadata")
    return ({} if hidden is None else {"hidden_size": hidden}), ".metadata"


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


def _hidden_size(metadata: Path) -> int | None:
    """Second dimension of the word embeddings by the checkpoint's own table of tensors."""
    try:
        with metadata.open("rb") as file:
            table: object = _Reader(file).load()
        tensors: Any = cast(_Part, table).state["state_dict_metadata"]
        (dimensions,) = tensors[_EMBEDDING].state["size"].arguments
        return int(dimensions[1])
    except (OSError, EOFError, pickle.UnpicklingError, AttributeError, KeyError, IndexError, TypeError, ValueError):
        return None

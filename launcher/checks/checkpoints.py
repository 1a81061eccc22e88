"""The Hugging Face checkpoint: its shape against the recipe's, and its weights."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from disk.regular_file import is_filled, read_regular
from launcher.checks.json_object import json_object
from launcher.preflight import Finding, failure, first_three, ok

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"


def check_checkpoint(
    option: str, checkpoint: str, expected: Mapping[str, object], model: str = "the recipe's model"
) -> Finding:
    """`expected` are fields of config.json and their values; a hub id is looked at on the nodes, when it is fetched."""
    name = f"checkpoint of {option}"
    folder = local_folder(checkpoint)
    if folder is None:
        return ok(name, f"{checkpoint} is no folder here: the nodes fetch it from the Hugging Face hub")
    try:
        config = read_object(folder / CONFIG)
    except (OSError, ValueError) as error:
        return failure(
            name, f"{folder / CONFIG} cannot be read ({_reason(error)})", f"name a Hugging Face model folder ({option})"
        )
    if difference := difference_of(config, expected, CONFIG, model):
        return failure(name, f"{folder}: {difference}", f"name a checkpoint of {model} with {option}")
    return _check_weights(name, folder, option, model)


def local_folder(checkpoint: str) -> Path | None:
    """None for a hub id: a relative name that is no folder here."""
    folder = Path(os.path.expanduser(checkpoint))
    return folder if os.path.exists(folder) or checkpoint.startswith((".", "/", "~")) else None


def difference_of(found: Mapping[str, object], expected: Mapping[str, object], source: str, model: str) -> str:
    """`config.json says num_hidden_layers 62; GLM-4.7-Flash has 47`; empty where every field is as expected."""
    differs = [field for field, value in expected.items() if found.get(field) != value]
    if not differs:
        return ""
    theirs = ", ".join(f"{field} {found.get(field, 'nothing')}" for field in differs)
    ours = [str(expected[field]) for field in differs]
    return f"{source} says {theirs}; {model} has {', '.join(ours[:-1]) + ' and ' if ours[1:] else ''}{ours[-1]}"


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object. Raises OSError, or ValueError where it is none."""
    return json_object(read_regular(path))


def _check_weights(name: str, folder: Path, option: str, model: str) -> Finding:
    files = {path.name for path in folder.glob("*.safetensors") if is_filled(path)}
    way_out = f"fetch the checkpoint again, or name a complete one with {option}"
    if not files:
        return failure(name, f"{folder} holds no *.safetensors with something in it", way_out)
    if (folder / INDEX).exists():
        try:
            index = read_object(folder / INDEX)
            shards = {str(shard) for shard in cast(dict[str, Any], index["weight_map"]).values()}
        except (OSError, ValueError, KeyError, AttributeError) as error:
            return failure(name, f"{folder / INDEX} cannot be read ({_reason(error)})", way_out)
        if missing := sorted(shards - files):
            return failure(
                name, f"{folder} lacks {len(missing)} of {len(shards)} shards: {first_three(missing)}", way_out
            )
    return ok(name, f"{folder} is {model}, {len(files)} weight files")


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)

"""Paths as a person gives them, made independent of where a process runs."""

from __future__ import annotations

import os
from pathlib import Path

from launcher.errors import OptionsError


def absolute(path: str) -> Path:
    """Raises OptionsError for the home of a user that is not there."""
    try:
        return Path(path).expanduser().absolute()
    except RuntimeError:
        raise OptionsError(f"{path}: there is no home folder of that user; write the path out") from None


def is_hub_id(checkpoint: str) -> bool:
    """`org/model` and no folder of that name here; anything else names a folder."""
    parts = checkpoint.split("/")
    looks = len(parts) == 2 and all(parts) and not checkpoint.startswith((".", "~"))
    return looks and not os.path.exists(checkpoint)


def model_location(checkpoint: str) -> str:
    """A folder as absolute path, a hub id as it is."""
    return checkpoint if is_hub_id(checkpoint) else str(absolute(checkpoint))

"""Paths as a person gives them, made independent of where a process runs."""

from __future__ import annotations

from pathlib import Path


def absolute(path: str) -> Path:
    return Path(path).expanduser().absolute()


def is_hub_id(checkpoint: str) -> bool:
    """`org/model` and no folder of that name here; anything else names a folder."""
    parts = checkpoint.split("/")
    looks = len(parts) == 2 and all(parts) and not checkpoint.startswith((".", "~"))
    return looks and not Path(checkpoint).exists()


def model_location(checkpoint: str) -> str:
    """A folder as absolute path, a hub id as it is."""
    return checkpoint if is_hub_id(checkpoint) else str(absolute(checkpoint))

"""The save folder as the head node sees it, against what the launching machine has read from it."""

from __future__ import annotations

from pathlib import Path

from disk.regular_file import read_regular
from launcher.preflight import Finding, failure, ok
from launcher.save_folder import TRACKER, is_used

NAME = "save folder"
_SHOWN = 40  # characters


def check_save_dir(save_dir: Path, resumes: bool, tracker: str | None) -> Finding:
    """`tracker`: its text on the launching machine, None where there is none. `resumes`: the run goes on in it."""
    try:
        used = is_used(save_dir)
    except OSError as error:
        return failure(NAME, f"{save_dir} cannot be read ({error.strerror})", "name another folder with --save-dir")
    if used and not resumes:
        return failure(
            NAME, f"{save_dir} already holds checkpoints", "add --resume to go on in it, or name a new --save-dir"
        )
    there = tracker_text(save_dir)
    if there != tracker:
        return failure(
            NAME,
            f"{save_dir} is not the same storage: its {TRACKER} {_says(there)} there, it {_says(tracker)} on the "
            "launching machine",
            "put --save-dir on storage that all machines see",
        )
    return ok(NAME, f"{save_dir} is as the launching machine sees it")


def tracker_text(folder: Path) -> str | None:
    """None where there is none that can be read."""
    try:
        return read_regular(folder / TRACKER).decode(errors="replace").strip()
    except OSError:
        return None


def _says(text: str | None) -> str:
    return "is missing" if text is None else f"says {text[:_SHOWN]!r}"

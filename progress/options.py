"""The options of verify_progress.py."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

import tyro

from progress.settings import ReadSettings


class BadOption(Exception):
    """An option that cannot work; the message says which and what would."""


@dataclass(frozen=True)
class Reading:
    """Judging"""

    stall_factor: float = ReadSettings.stall_factor
    """A run is stalled after so many median steps without a new dump ..."""
    stall_floor: float = ReadSettings.stall_floor
    """... and not before so many seconds. A run of which no step time is known has an hour."""
    num_rollout: int | None = None
    """Rollouts of the whole run (default: as its launch file says)."""
    cache_dir: Path | None = None
    """Where summaries of dumps that were read are kept (default: beside the dumps, or below XDG_CACHE_HOME where those
    cannot be written)."""

    def settings(self) -> ReadSettings:
        """Raises BadOption."""
        for flag, value in (("--stall-factor", self.stall_factor), ("--stall-floor", self.stall_floor)):
            if not (math.isfinite(value) and value > 0):
                raise BadOption(f"{flag} must be a number above 0, got {value}")
        if self.num_rollout is not None and self.num_rollout < 1:
            raise BadOption(f"--num-rollout must be at least 1, got {self.num_rollout}")
        return ReadSettings(self.stall_factor, self.stall_floor, self.num_rollout, self.cache_dir)


@dataclass(frozen=True)
class VerifyOptions:
    """Says whether a run advances, and what is wrong with it, from the files in its folder."""

    folder: tyro.conf.Positional[Path]
    """The traces folder of a run (--save-traces-dir), or a save folder that holds one."""
    json: bool = False
    """Print one JSON object and nothing else; with --follow one a line, whenever something changed."""
    follow: bool = False
    """Go on until the run has finished, and show what changes."""
    interval: float = 5.0
    """Seconds between two looks with --follow."""
    plot: Path | None = None
    """Draw reward, signal, discards, times and tokens into this PNG file."""
    html: Path | None = None
    """Write this self-contained page: picture, table, findings and trajectories."""
    samples: tuple[int, ...] = ()
    """Rollouts whose trajectories the page shows (default: a choice from all)."""
    trials_dir: Path | None = None
    """Trial folders of the agent server (its --trials-dir), for the verifier's output in the page."""
    wandb: str | None = None
    """Name the steps that are on disk and not in this W&B run: ENTITY/PROJECT/RUN, or an offline run folder."""
    reading: tyro.conf.OmitArgPrefixes[Reading] = field(default_factory=Reading)

    def check(self) -> None:
        """Raises BadOption."""
        if not (math.isfinite(self.interval) and self.interval > 0):
            raise BadOption(f"--interval must be a number above 0, got {self.interval}")
        for flag, given in (("--samples", self.samples), ("--trials-dir", self.trials_dir)):
            if given and self.html is None:
                raise BadOption(f"{flag} is for the page: name its file with --html")


@dataclass(frozen=True)
class CompareOptions:
    """Compares runs at equal steps."""

    folders: tyro.conf.Positional[tuple[Path, ...]]
    """Two or more runs: traces folders, or save folders that hold one."""
    json: bool = False
    """Print one JSON object and nothing else."""
    plot: Path | None = None
    """Draw the runs into this PNG file, one over the other."""
    reading: tyro.conf.OmitArgPrefixes[Reading] = field(default_factory=Reading)

"""Reads the folder of a run: the way from files to a report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from progress.recorded_trajectory import RecordedTrajectory
from progress.run_report import RunReport


@dataclass(frozen=True)
class ReadSettings:
    """How the files are judged."""

    stall_factor: float = 3.0  # a run is stalled after so many median steps without a new file ...
    stall_floor: float = 300.0  # ... and not before so many seconds
    num_rollout: int | None = None  # rollouts of the whole run; None: as the launch file says
    cache_dir: Path | None = None  # None: beside the dumps, or in the user's cache folder when that is read-only


def read_run(folder: Path, settings: ReadSettings = ReadSettings()) -> RunReport:
    """The report of the dumps below `folder`: a traces folder, or a save folder that holds one.

    Never raises for what the files hold: what cannot be read is a finding, a folder without dumps is NO DATA.
    """
    raise NotImplementedError


def read_samples(folder: Path, rollout_id: int, trials_dir: Path | None = None) -> list[RecordedTrajectory]:
    """The trajectories of one rollout in the order of its dump; empty where there is no readable dump.

    `trials_dir` holds the trial folders with the verifier's output; None: where the local engine puts them.
    """
    raise NotImplementedError

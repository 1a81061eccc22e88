"""How the files of a run are judged."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ReadSettings:
    """Times in seconds."""

    stall_factor: float = 3.0  # a run is stalled after so many median steps without a new file ...
    stall_floor: float = 300.0  # ... and not before so many seconds
    num_rollout: int | None = None  # rollouts of the whole run; None: as the launch file says
    cache_dir: Path | None = None  # None: beside the dumps, or in the user's cache folder when that is read-only

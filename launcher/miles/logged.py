"""How far a stopped run got, by its dumps."""

from __future__ import annotations

import re
from pathlib import Path

_DUMP = re.compile(r"(\d+)\.pt\Z")


def last_dumped_rollout(traces: str | None) -> int | None:
    """0-based id of the newest rollout in `<traces>/rollout_data`; None where there is none."""
    if traces is None:
        return None
    try:
        names = [entry.name for entry in Path(traces, "rollout_data").iterdir()]
    except OSError:
        return None
    return max((int(match[1]) for name in names if (match := _DUMP.match(name))), default=None)

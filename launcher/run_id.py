"""Names of runs."""

from __future__ import annotations

import secrets
import time


def new_run_id() -> str:
    """Sorts by time and is unique among launchers started in the same second."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"

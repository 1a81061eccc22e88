"""What a folder takes on the disk."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def disk_use(folder: Path) -> int:
    """Bytes of all blocks below `folder`; what comes or goes meanwhile may count or not."""
    total = 0
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            with suppress(OSError):
                total += os.lstat(os.path.join(parent, name)).st_blocks * 512
    return total

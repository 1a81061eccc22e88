"""Whether this machine's GPUs are joined by NVLink."""

from __future__ import annotations

import re
import subprocess

_SECONDS = 5


def has_nvlink() -> bool:
    """By `nvidia-smi topo -m`; False where there is none, as on a laptop."""
    try:
        answer = subprocess.run(
            ["nvidia-smi", "topo", "-m"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.returncode == 0 and re.search(r"\bNV\d+\b", answer.stdout) is not None

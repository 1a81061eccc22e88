"""The local engine against what one would use otherwise: `generate` of transformers for sampling, TRL for updates.

    uv run --with trl python benchmarks/local_engine.py

compares both in one process on the same machine; TRL is a dependency of nothing here and is installed only for that
command. Without it (`uv run python benchmarks/local_engine.py`) the updates are timed and compared with nothing.

Left out: trials and their waiting. Sampling is a fixed number of tokens per prompt with no early end, updates are one
optimizer step on the same trajectories with the same adapter. Every pair of measurements is taken in turn, so that a
busy machine slows both; the table shows medians and their ratio. About 10 minutes on two cores, 3 without TRL.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    # As a script this folder would come first on the path, and this file would hide the package of the same name.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    from benchmarks.parts.command import main

    main(__doc__ or "")

"""Stand-in for Miles' conversion tool, which needs GPUs: leaves what a complete conversion leaves, or fails as told.

STAND_IN_CONVERT_EXIT=code   what rank 0 ends with before it writes anything (0)
"""

import os
import sys
from pathlib import Path


def main() -> int:
    rank = int(os.environ["RANK"])
    print(f"converting, rank {rank} of {os.environ['WORLD_SIZE']}", flush=True)
    if rank != 0:
        return 0
    code = int(os.environ.get("STAND_IN_CONVERT_EXIT", "0"))
    if code:
        return code
    folder = Path(sys.argv[sys.argv.index("--save") + 1])
    (folder / "release").mkdir(parents=True, exist_ok=True)
    for name in ("metadata.json", "common.pt", "__0_0.distcp"):
        (folder / "release" / name).write_bytes(b"x")
    (folder / "latest_checkpointed_iteration.txt").write_text("release")
    return 0


if __name__ == "__main__":
    sys.exit(main())

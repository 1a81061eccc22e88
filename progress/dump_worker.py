"""The process that opens dumps: one JSON request a line in, one JSON answer a line out.

A file made to harm its reader - memory without end, a crash in the unpickler - ends this process and no other.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from progress.unreadable import Unreadable

GIB = 2**30
SPACE = 4 * GIB  # address space beyond what is taken, whatever the file's size ...
SPACE_PER_BYTE = 40  # ... and for each of its bytes: what a list of integers needs as Python objects


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """`{"found": ...}`, or `{"reason": why the file is not what its name says, "lasting": false if that may pass}`."""
    from progress.dump_file import load_dump
    from progress.dump_summary import NotADump, summarise_samples, summarise_training
    from progress.dump_trajectories import trajectories_of

    path, rollout_id, reward_key = request["path"], request["rollout_id"], request["reward_key"]
    try:
        content = load_dump(path)
        if request["what"] == "train":
            return {"found": asdict(summarise_training(content, rollout_id, request["rank"]))}
        if request["what"] == "trajectories":
            return {"found": [asdict(one) for one in trajectories_of(content, rollout_id, reward_key)]}
        return {"found": asdict(summarise_samples(content, rollout_id, reward_key))}
    except Unreadable as error:
        return {"reason": str(error), "lasting": error.lasting}
    except NotADump as error:
        return {"reason": str(error)}
    except (MemoryError, RecursionError) as error:
        return {"reason": f"it does not fit into memory as objects ({type(error).__name__})"}
    except (TypeError, ValueError, AttributeError, KeyError, IndexError, RuntimeError, OverflowError) as error:
        # Values of a kind that no trainer writes where numbers and texts belong.
        return {"reason": f"it holds what no dump holds ({type(error).__name__}: {str(error)[:120]})"}


def main() -> None:
    try:
        import progress.dump_file  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError as error:
        print(json.dumps({"missing": str(error)}), flush=True)
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        _limit_memory(request["path"])
        print(json.dumps(answer(request)), flush=True)


def _limit_memory(path: str) -> None:
    try:
        size = Path(path).stat().st_size
    except OSError:
        size = 0
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = taken + SPACE + SPACE_PER_BYTE * size
    resource.setrlimit(resource.RLIMIT_AS, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


if __name__ == "__main__":
    main()

"""Ray job that converts a checkpoint unless that is done: on the cluster, which sees the folder that counts.

Started as `python3 -m launcher.miles.convert_on_nodes --folder F --hf-checkpoint C --model NAME --fields JSON --` and
the arguments of `launcher.ray_jobs.on_nodes`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from launcher.checks.references import is_converted, write_marker
from launcher.ray_jobs import on_nodes


def main(argv: Sequence[str]) -> int:
    """0 when the reference is there, complete and of the right model; else 1 or the conversion's own code."""
    parser = argparse.ArgumentParser(prog="convert_on_nodes")
    for name in ("folder", "hf-checkpoint", "model", "fields"):
        parser.add_argument(f"--{name}", required=True)
    split = argv.index("--")
    options = parser.parse_args(argv[:split])
    folder, fields = Path(options.folder), json.loads(options.fields)
    complete, reason = is_converted(folder, fields, options.model)
    if complete:
        print(f"reference: {reason}", flush=True)
        return 0
    print(f"converting {options.hf_checkpoint} to {folder} ({reason})", flush=True)
    code = on_nodes.main(argv[split + 1 :])
    if code:
        return code
    complete, reason = is_converted(folder, fields, options.model)
    if not complete:
        print(f"the conversion ended without error, but {reason}", file=sys.stderr, flush=True)
        return 1
    write_marker(folder, options.hf_checkpoint, fields)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

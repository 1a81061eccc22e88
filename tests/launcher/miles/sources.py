"""Stand-ins for installed Miles: source files that define the flags of a public version, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

NAMES = json.loads((Path(__file__).parents[2] / "data" / "miles_flags.json").read_text())


def august(root: Path) -> Path:
    """A range of session ports, no --session-server-workers, no --session-server-external-host."""
    return _write(root, set(NAMES["miles"]), session_port='nargs="+"')


def newest(root: Path) -> Path:
    return _write(root, set(NAMES["miles"]) | set(NAMES["miles_newer"]), session_port="default=None")


def may(root: Path) -> Path:
    """One session server, no asynchronous driver, no offload to disk."""
    later = {"--fully-async", "--use-miles-dashboard", "--observe-training-entropy", "--dsa-attention-backend"}
    later |= {flag for flag in NAMES["miles"] if flag.startswith("--offload-train-")}
    return _write(root, set(NAMES["miles"]) - later, session_port="default=None")


def may_package(root: Path) -> Path:
    """The one on PyPI: it has to be told which roles may follow an answer and to call functions of a recipe."""
    may(root)
    (root / "miles" / "rollout_options.py").write_text(
        'parser.add_argument("--tito-allowed-append-roles")\nos.environ.get("MILES_EXPERIMENTAL_ROLLOUT_REFACTOR")\n'
    )
    return root


def _write(root: Path, flags: set[str], session_port: str) -> Path:
    folder = root / "miles" / "utils"
    folder.mkdir(parents=True)
    lines = [f'    parser.add_argument("{flag}")' for flag in sorted(flags - {"--session-server-port"})]
    lines.append(f'    parser.add_argument("--session-server-port", type=int, {session_port})')
    (folder / "arguments.py").write_text("def add_arguments(parser):\n" + "\n".join(lines) + "\n")
    return root

"""What a run has written to `<traces>/outcomes/`."""

import json
from pathlib import Path
from typing import Any

from trajectory.outcomes_file import FOLDER


def read_outcomes(traces_dir: Path) -> list[dict[str, Any]]:
    """The lines of all processes, oldest first; what a killed process tore is left out."""
    lines: list[dict[str, Any]] = []
    for path in sorted((traces_dir / FOLDER).glob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            try:
                lines.append(json.loads(line))
            except ValueError:
                continue
    return sorted(lines, key=lambda line: line["time"])

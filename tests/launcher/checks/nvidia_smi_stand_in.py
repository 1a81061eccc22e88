"""Stand-in for nvidia-smi on machines without a GPU: an executable that prints the tables it was made with."""

from __future__ import annotations

import shlex
from pathlib import Path


def write_nvidia_smi(folder: Path, gpus: str, processes: str = "") -> Path:
    """`gpus`: lines of index, uuid, MiB in all, MiB used; `processes`: uuid, pid, MiB, name. Goes first on PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\n# Stand-in of the tests, no driver is asked.\n"
        f'case "$1" in\n--query-gpu=*) printf %s {shlex.quote(gpus)} ;;\n'
        f"--query-compute-apps=*) printf %s {shlex.quote(processes)} ;;\nesac\n"
    )
    program.chmod(0o755)
    return folder


def table(count: int, total: int = 143771, used: int = 4) -> str:
    """Of `count` equal GPUs, MiB."""
    return "".join(f"{index}, GPU-{index}, {total}, {used}\n" for index in range(count))

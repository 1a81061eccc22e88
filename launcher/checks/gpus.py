"""The GPUs of this machine by nvidia-smi: how many, how much of their memory is free, and who holds the rest."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from concurrent.futures import wait
from dataclasses import dataclass

from launcher.daemon_call import in_daemon
from launcher.preflight import Finding, failure, first_three, ok, warning

_NAME = "GPUs"
_TIMEOUT = 4.0  # seconds; the driver takes some to load where nothing keeps it loaded
_MIB_PER_GIB = 1024


@dataclass(frozen=True)
class Gpu:
    """Memory in GiB; `holders` as `pid 4711 (python3) 60.0 GiB`."""

    index: int
    total: float
    used: float
    holders: tuple[str, ...]

    @property
    def free(self) -> float:
        return self.total - self.used


def check_gpus(wanted: int, needed_gib: float) -> Finding:
    """`wanted` GPUs with `needed_gib` free on each. Looks only: no process is ever signalled."""
    try:
        gpus = read_gpus()
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        return failure(
            _NAME,
            f"{wanted} GPUs are wanted and nvidia-smi does not answer ({reason})",
            "start on a machine with them, or name a Ray cluster with --ray-address",
        )
    if len(gpus) < wanted:
        return failure(
            _NAME, f"{len(gpus)} GPUs are there, {wanted} are wanted", f"pass --num-gpus-per-node {len(gpus) or 1}"
        )
    held = [f"GPU {gpu.index} {holder}" for gpu in gpus for holder in gpu.holders]
    by = f", held by {first_three(held)}" if held else ""
    roomy = [gpu for gpu in gpus if gpu.free >= needed_gib]
    if len(roomy) < wanted:
        tight = ", ".join(f"GPU {gpu.index} {gpu.free:.1f} of {gpu.total:.1f}" for gpu in gpus if gpu not in roomy)
        return failure(
            _NAME,
            f"{len(roomy)} of {wanted} GPUs have {needed_gib:.1f} GiB free (GiB free: {tight}){by}",
            "wait for its end, or ask its owner; a leftover of your own is ended by its pid"
            if held
            else "choose a smaller shape: more nodes, or a shorter --max-seq-len",
        )
    if held:
        return warning(_NAME, f"{len(gpus)} are there, memory is in use{by}", "the run goes slower beside it")
    return ok(
        _NAME, f"{len(gpus)} are there, at least {min((gpu.free for gpu in gpus), default=0):.1f} GiB free on each"
    )


def read_gpus() -> list[Gpu]:
    """Raises OSError without nvidia-smi, SubprocessError where it fails, ValueError where its answer is no table."""
    cards = in_daemon(lambda: _query("--query-gpu=index,uuid,memory.total,memory.used"))
    processes = in_daemon(lambda: _query("--query-compute-apps=gpu_uuid,pid,used_memory,process_name"))
    # Longer than its own limit only where the driver hangs so that not even SIGKILL ends it.
    wait([cards, processes], _TIMEOUT + 1)
    if not (cards.done() and processes.done()):
        raise subprocess.TimeoutExpired("nvidia-smi", _TIMEOUT)
    rows, apps = cards.result(), processes.result()
    return [
        Gpu(int(index), float(total) / _MIB_PER_GIB, float(used) / _MIB_PER_GIB, tuple(_holders(uuid, apps)))
        for index, uuid, total, used in rows
    ]


def _holders(uuid: str, apps: Iterable[tuple[str, ...]]) -> Iterable[str]:
    for gpu, pid, memory, process in apps:
        if gpu == uuid:
            # In a container the driver may hide how much each process has.
            size = f"{float(memory) / _MIB_PER_GIB:.1f} GiB" if memory.isdigit() else "memory unknown"
            yield f"pid {pid} ({process}) {size}"


def _query(what: str) -> list[tuple[str, ...]]:
    done = subprocess.run(
        ["nvidia-smi", what, "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_TIMEOUT,
        check=True,
    )
    # The process name comes last: it may contain a comma itself.
    return [tuple(part.strip() for part in line.split(",", 3)) for line in done.stdout.splitlines() if line.strip()]

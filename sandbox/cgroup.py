"""Control groups of trials (cgroup v2), where this server was given a part of the tree.

A server started with `systemd-run --user --scope -p Delegate=yes ...`, or alone in a delegated unit or container, may
divide its own group: it moves itself to `server`, and every trial gets a group of its own beside it. Elsewhere there
are none, and `sandbox.memory` and the trial's processors are what limits a trial.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from sandbox.limits import Limits

_logger = logging.getLogger(__name__)

_CONTROLLERS = ("cpu", "memory", "pids")
_SERVER = "server"
_PERIOD_US = 100_000
_HOLDER_PROCESSES = 8
_HOLDER_MB = 64  # the holder, bwrap, and what the verifier may write beside a full disk


class TrialGroup:
    """One trial's group. Raises OSError where the kernel refuses what the tree promised."""

    def __init__(self, parent: Path, name: str, limits: Limits) -> None:
        self.path = parent / name
        self._mb = limits.total_memory_mb + limits.disk_mb + limits.shm_mb + _HOLDER_MB
        self.path.mkdir()
        try:
            # The files of a trial lie in memory and count here too.
            self._write("memory.max", str(self._mb << 20))
            # Killed alone, the largest process leaves the holder to say how the trial ended.
            self._write("memory.oom.group", "0")
            with contextlib.suppress(FileNotFoundError):
                self._write("memory.swap.max", "0")
            self._write("pids.max", str(limits.processes + _HOLDER_PROCESSES))
            self._write("cpu.max", f"{limits.cpus * _PERIOD_US} {_PERIOD_US}")
        except OSError:
            self.remove()
            raise

    def add(self, pids: Iterable[int]) -> None:
        """Move processes in; what they start later is in it by itself."""
        for pid in pids:
            self._write("cgroup.procs", str(pid))

    def exceeded(self) -> str:
        """A sentence if the kernel has ended a process for the group's memory, else nothing."""
        try:
            events = (self.path / "memory.events").read_text()
        except OSError:
            # The trial is ending.
            return ""
        for line in events.splitlines():
            key, _, value = line.partition(" ")
            if key == "oom_kill" and value != "0":
                return f"the sandbox's control group reached {self._mb} MiB of memory (total_memory_mb and its files)"
        return ""

    def remove(self) -> None:
        """Remove the group once its last process is gone."""
        with contextlib.suppress(OSError):
            self.path.rmdir()

    def _write(self, name: str, text: str) -> None:
        (self.path / name).write_text(text)


def trial_group(name: str, limits: Limits, pids: Callable[[], Iterable[int]]) -> TrialGroup | None:
    """A group with these processes in it, or None where this server cannot have any."""
    parent = delegated_group()
    if parent is None:
        return None
    group: TrialGroup | None = None
    try:
        group = TrialGroup(parent, name, limits)
        group.add(pids())
    except OSError as error:
        _logger.warning("%s goes on without a control group: %s", name, error)
        if group is not None:
            group.remove()
        return None
    return group


@functools.cache
def delegated_group() -> Path | None:
    """The group below which trials get theirs; the first call divides it."""
    group = own_group(Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text())
    if group is None:
        return None
    try:
        divided = divide(group, os.getpid())
    except OSError as error:
        _logger.info("no control groups for trials: %s", error)
        return None
    if divided is not None:
        _logger.info("every trial gets a control group below %s", divided)
    return divided


def own_group(cgroup: str, mountinfo: str) -> Path | None:
    """Where /proc/self/cgroup and /proc/self/mountinfo say that this process's cgroup v2 folder is."""
    ours = next((line[3:] for line in cgroup.splitlines() if line.startswith("0::")), None)
    if ours is None:
        return None
    for line in mountinfo.splitlines():
        fields, _, rest = line.partition(" - ")
        if rest.split()[0] != "cgroup2":
            continue
        root, mount_point = fields.split()[3:5]
        with contextlib.suppress(ValueError):
            return Path(mount_point) / Path(ours).relative_to(root)
    return None


def divide(group: Path, server: int) -> Path | None:
    """Make `group` one that has groups instead of processes; None where it is not this server's alone.

    Raises:
        OSError: it may not be changed.
    """
    controllers = (group / "cgroup.controllers").read_text().split()
    if not set(_CONTROLLERS) <= set(controllers):
        return None
    if (group / "cgroup.procs").read_text().split() != [str(server)]:
        # Somebody else's processes are not ours to move.
        return None
    (group / _SERVER).mkdir(exist_ok=True)
    (group / _SERVER / "cgroup.procs").write_text(str(server))
    (group / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in _CONTROLLERS))
    for left in group.glob("trial-*"):
        # A killed server's; one that is still in use cannot be removed.
        with contextlib.suppress(OSError):
            left.rmdir()
    return group

"""What one trial may use; the sandbox enforces every number with the kernel or ends the command that passes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields


class SandboxLimitExceeded(RuntimeError):
    """What ran in a sandbox used more than a whole trial may, and was ended for it; the text has the numbers."""


@dataclass(frozen=True)
class Limits:
    """Limits of one trial. Every field is a positive whole number."""

    # per trial
    disk_mb: int = 256  # MiB of all files together (a tmpfs: they live in memory and are counted only when written)
    inodes: int = 20_000  # files, folders and links together
    processes: int = 256  # processes and threads at one time
    shm_mb: int = 16  # MiB of /dev/shm
    total_memory_mb: int = 4096  # MiB that all processes hold together, files not counted; more ends the trial
    cpus: int = 2  # processors busy at one time
    sockets: int = 1024  # open at one time; more ends the trial
    terminals: int = 32  # pseudo terminals at one time

    # per process
    memory_mb: int = 2048  # MiB of private writable memory (RLIMIT_DATA); the address space may be four times as large
    file_mb: int = 128  # MiB of one file
    open_files: int = 1024  # open file descriptors

    # per command and transfer
    output_kb: int = 256  # KiB kept of stdout and of stderr, head and tail; the middle is dropped
    flood_mb: int = 64  # MiB a command may print before it is killed
    download_mb: int = 64  # MiB one download may bring to the host

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"sandbox limit {field.name}={value!r}: give a whole number of at least 1")

    @classmethod
    def from_mapping(cls, values: Mapping[str, int] | None) -> Limits:
        """The defaults with the given ones put over them.

        Raises:
            ValueError: a name is not a limit, or a value is not a positive whole number.
        """
        values = values or {}
        known = [field.name for field in fields(cls)]
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise ValueError(f"unknown sandbox limits {unknown}: known are {known}")
        return cls(**values)

"""How much memory the processes of one trial hold together, where no control group counts it."""

from __future__ import annotations

import os

from sandbox.limits import Limits

_PAGE = os.sysconf("SC_PAGE_SIZE")
_READ = 1 << 16
_SHARED_MEMORY = (b" /dev/zero (deleted)", b" /SYSV")
# Of the tables of mappings of all processes together, a line of some 50 bytes for each: reading more than that at
# every look would cost this machine more than the trial.
_MOST_MAPPINGS_BYTES = 16 << 20


class TrialMemory:
    """Reads the process table of a trial's own process namespace; owns a descriptor of it."""

    def __init__(self, holder: int) -> None:
        """`holder`: process id of the trial's holder, whose mount namespace has that table at /proc."""
        self._proc = os.open(f"/proc/{holder}/root/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._our_network = os.stat("/proc/self/ns/net").st_ino

    def close(self) -> None:
        if self._proc >= 0:
            os.close(self._proc)
            self._proc = -1

    def mapped(self) -> int:
        """Bytes of all mappings, a cheap upper bound of private memory: nobody holds more than he has mapped."""
        return sum(self._pages(pid)[0] for pid in self._pids()) * _PAGE

    def exceeds(self, limit: int) -> int:
        """The bytes in use where that is more than `limit`, else 0; takes milliseconds for each GiB.

        Memory that forked processes still share counts once; shared memory counts with all that its maker wrote,
        because pages that nobody has mapped any more stay allocated.
        """
        pids = self._pids()
        held = sum(self.shared().values()) + sum(self._page_tables(pid) for pid in pids)
        # Counts twice what forked processes share: enough to acquit.
        if held + sum(self._pages(pid)[1] for pid in pids) * _PAGE <= limit:
            return 0
        used = held + sum(self._private(pid) for pid in pids)
        return used if used > limit else 0

    def shared(self) -> dict[bytes, int]:
        """Bytes of each piece of shared memory that a process maps, if only in part.

        Raises:
            TooManyMappings: the processes have more mappings than can be looked through.
        """
        segments: dict[bytes, int] = {}
        left = _MOST_MAPPINGS_BYTES
        for pid in self._pids():
            table = self._read(f"{pid}/maps", left + 1)
            left -= len(table)
            if left < 0:
                raise TooManyMappings
            for mark in _SHARED_MEMORY:
                at = table.find(mark)
                while at >= 0:
                    line = table[table.rfind(b"\n", 0, at) + 1 : at].split()
                    key = line[3] + line[4]
                    segments[key] = max(segments.get(key, 0), self._segment(pid, line[0], int(line[2], 16)))
                    at = table.find(mark, at + 1)
        return segments

    def sockets(self) -> int:
        """Open sockets of the present cell, those that only other sockets hold included."""
        # The youngest process is the cell's; the holder's own are in our network.
        pid = max(self._pids(), key=int, default="0")
        try:
            if os.stat(f"{pid}/ns/net", dir_fd=self._proc).st_ino == self._our_network:
                return 0
        except OSError:  # it has ended meanwhile
            return 0
        used = self._read(f"{pid}/net/sockstat").partition(b"sockets: used ")[2].split()
        return int(used[0]) if used else 0

    def _pids(self) -> list[str]:
        try:
            return [name for name in os.listdir(self._proc) if name.isdigit()]
        except OSError:
            # The trial is ending.
            return []

    def _read(self, path: str, most: int = 1 << 40) -> bytes:
        """The text, or its first `most` bytes and some; empty when the process is gone."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._proc)
        except OSError:
            return b""
        try:
            parts: list[bytes] = []
            while most > 0 and (part := os.read(fd, _READ)):
                parts.append(part)
                most -= len(part)
            return b"".join(parts)
        except ProcessLookupError:
            return b""
        finally:
            os.close(fd)

    def _pages(self, pid: str) -> tuple[int, int]:
        """Pages mapped, and pages of private memory that are there."""
        fields = self._read(f"{pid}/statm").split()
        return (int(fields[0]), max(0, int(fields[1]) - int(fields[2]))) if fields else (0, 0)

    def _segment(self, pid: str, addresses: bytes, offset: int) -> int:
        begin, end = (int(address, 16) for address in addresses.split(b"-"))
        try:
            return os.stat(f"{pid}/map_files/{begin:x}-{end:x}", dir_fd=self._proc).st_blocks * 512
        except OSError:
            # Only root may look behind a mapping; others see of it what is still mapped.
            return offset + end - begin

    def _page_tables(self, pid: str) -> int:
        _, _, rest = self._read(f"{pid}/status").partition(b"VmPTE:")
        return int(rest.split(maxsplit=1)[0]) << 10 if rest else 0

    def _private(self, pid: str) -> int:
        for line in self._read(f"{pid}/smaps_rollup").splitlines():
            if line.startswith(b"Pss_Anon:"):
                return int(line.split()[1]) << 10
        # A kernel before 5.4: what forked processes share counts more than once.
        return self._pages(pid)[1] * _PAGE


class TooManyMappings(Exception):
    """The mappings of a trial cannot be looked through."""


def look(memory: TrialMemory, limits: Limits) -> tuple[int, str]:
    """The most that the trial's processes can hold, in bytes, and a sentence where they hold more than they may."""
    limit = limits.total_memory_mb << 20
    try:
        most = memory.mapped() + sum(memory.shared().values())
        used = memory.exceeds(limit) if most > limit else 0
    except TooManyMappings:
        return limit, "the sandbox's processes made more memory mappings than can be watched and were ended"
    if used:
        return most, (
            f"the sandbox's processes held {used >> 20} MiB of memory together and were ended; "
            f"the limit total_memory_mb is {limits.total_memory_mb}"
        )
    sockets = memory.sockets()
    if sockets > limits.sockets:
        return most, f"the sandbox's processes had {sockets} sockets open and were ended; the limit is {limits.sockets}"
    return most, ""

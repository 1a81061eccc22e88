"""How much memory the processes of one trial hold together, where no control group counts it."""

from __future__ import annotations

import os

_PAGE = os.sysconf("SC_PAGE_SIZE")
_READ = 1 << 16
_SHARED_MEMORY = (b"/dev/zero (deleted)", b"/SYSV")


class TrialMemory:
    """Reads the process table of a trial's own process namespace; owns a descriptor of it."""

    def __init__(self, holder: int) -> None:
        """`holder`: process id of the trial's holder, whose mount namespace has that table at /proc."""
        self._proc = os.open(f"/proc/{holder}/root/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        if self._proc >= 0:
            os.close(self._proc)
            self._proc = -1

    def mapped(self) -> int:
        """Bytes of all mappings, a cheap upper bound: nobody holds more memory than he has mapped."""
        return sum(self._pages(pid)[0] for pid in self._pids()) * _PAGE

    def exceeds(self, limit: int) -> int:
        """The bytes in use where that is more than `limit`, else 0; takes milliseconds for each GiB.

        Memory that forked processes still share counts once; shared memory counts with its whole mapping, because
        pages that nobody has mapped any more stay allocated.
        """
        pids = self._pids()
        segments: dict[bytes, int] = {}
        for pid in pids:
            self._note_segments(pid, segments)
        shared = sum(segments.values())
        # Counts twice what forked processes share: enough to acquit.
        if shared + sum(self._pages(pid)[1] for pid in pids) * _PAGE <= limit:
            return 0
        used = shared + sum(self._private(pid) for pid in pids)
        return used if used > limit else 0

    def _pids(self) -> list[str]:
        try:
            return [name for name in os.listdir(self._proc) if name.isdigit()]
        except OSError:
            # The trial is ending.
            return []

    def _read(self, path: str) -> bytes:
        """The whole text; empty when the process is gone."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._proc)
        except OSError:
            return b""
        try:
            parts: list[bytes] = []
            while part := os.read(fd, _READ):
                parts.append(part)
            return b"".join(parts)
        except ProcessLookupError:
            return b""
        finally:
            os.close(fd)

    def _pages(self, pid: str) -> tuple[int, int]:
        """Pages mapped, and pages of private memory that are there."""
        fields = self._read(f"{pid}/statm").split()
        return (int(fields[0]), max(0, int(fields[1]) - int(fields[2]))) if fields else (0, 0)

    def _note_segments(self, pid: str, segments: dict[bytes, int]) -> None:
        for line in self._read(f"{pid}/maps").splitlines():
            parts = line.split(maxsplit=5)
            if len(parts) == 6 and parts[5].startswith(_SHARED_MEMORY):
                begin, _, end = parts[0].partition(b"-")
                key = parts[3] + parts[4]
                segments[key] = max(segments.get(key, 0), int(end, 16) - int(begin, 16))

    def _private(self, pid: str) -> int:
        for line in self._read(f"{pid}/smaps_rollup").splitlines():
            if line.startswith(b"Pss_Anon:"):
                return int(line.split()[1]) << 10
        # A kernel before 5.4: what forked processes share counts more than once.
        return self._pages(pid)[1] * _PAGE

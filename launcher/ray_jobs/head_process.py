"""Keeps a Ray head and all that it starts; run as a script, by path, with nothing but the standard library.

    head_process.py FOLDER (tied | kept) COMMAND ARGS...

Runs COMMAND and waits. It ends the command when SIGTERM or SIGINT comes and, where tied, when standard input is closed,
which the kernel does also for a launcher that was killed. As the subreaper of its descendants it then ends what is left
of them, jobs included, whatever session they moved to, and nothing else; last it removes FOLDER.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

GRACE_SECONDS = 15.0
_REST_SECONDS = 10.0
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def main(folder: str, tie: str, *command: str) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        print(f"prctl: {os.strerror(ctypes.get_errno())}", file=sys.stderr)
        return 1
    wake = _signals_as_bytes(signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
    head = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        # Should this process be killed, nobody else would end the head.
        preexec_fn=lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0),
    )
    code = _until_told(head.pid, wake, sys.stdin.fileno() if tie == "tied" else None)
    if code is None:
        os.kill(head.pid, signal.SIGTERM)
        code = _until_exit(head.pid, wake, GRACE_SECONDS)
    _end_descendants(_REST_SECONDS)
    head.returncode = 1 if code is None else code
    shutil.rmtree(folder, ignore_errors=True)
    return 0 if head.returncode == 0 else 1


def _signals_as_bytes(*numbers: signal.Signals) -> int:
    """A descriptor that becomes readable with each of the signals, as one byte with its number."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, _ignore)
    return read


def _ignore(number: int, _: object) -> None:
    """Unlike SIG_IGN it is not passed on to the head, and lets the byte through."""


def _until_told(head: int, wake: int, tie: int | None) -> int | None:
    """Exit code of the head that ended by itself, or None when it is to be ended."""
    while True:
        ready, _, _ = select.select([wake] if tie is None else [wake, tie], [], [])
        if wake in ready:
            numbers = os.read(wake, 4096)
            code = _reap(head)
            if code is not None:
                return code
            if signal.SIGTERM in numbers or signal.SIGINT in numbers:
                return None
        if tie in ready and not os.read(tie, 1):
            return None


def _until_exit(head: int, wake: int, seconds: float) -> int | None:
    deadline = time.monotonic() + seconds
    while (remaining := deadline - time.monotonic()) > 0:
        code = _reap(head)
        if code is not None:
            return code
        ready, _, _ = select.select([wake], [], [], remaining)
        if ready:
            os.read(wake, 4096)
    return None


def _reap(head: int) -> int | None:
    """Buries every child that has ended, adopted ones too; the head's exit code if it was among them."""
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if pid == 0:
            return code
        if pid == head:
            code = os.waitstatus_to_exitcode(status)


def _end_descendants(seconds: float) -> None:
    """The children of a killed child become ours, so this goes on until there is none."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for pid in _children():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        time.sleep(0.02)


def _children() -> list[int]:
    children: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue  # it has ended since
            # The name in parentheses may hold spaces and parentheses itself.
            if int(stat.rpartition(")")[2].split()[1]) == os.getpid():
                children.append(int(entry.name))
    return children


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

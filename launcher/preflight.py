"""Checks before a start: each one sentence and a way out, run side by side within a time limit, all reported."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from enum import StrEnum

from launcher.daemon_call import in_daemon
from launcher.errors import LauncherError
from launcher.output import say

LIMIT = 20.0  # seconds of one check, where it names no other limit
_NOTICED = 0.5  # seconds until a signal is, at most
_CLEAN_UP = 2.0  # seconds for all checks that were interrupted


class Status(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"


@dataclass(frozen=True)
class Finding:
    """What one check found; `way_out` is empty where all is well."""

    check: str
    status: Status
    sentence: str
    way_out: str = ""


@dataclass(frozen=True)
class Check:
    """`look` may take `limit` seconds; `interrupted` is set for one that must stop what it has started elsewhere."""

    name: str
    look: Callable[[], Finding | list[Finding]]
    limit: float = LIMIT
    interrupted: threading.Event | None = None


def ok(check: str, sentence: str) -> Finding:
    return Finding(check, Status.OK, sentence)


def warning(check: str, sentence: str, way_out: str) -> Finding:
    return Finding(check, Status.WARNING, sentence, way_out)


def failure(check: str, sentence: str, way_out: str) -> Finding:
    return Finding(check, Status.FAILURE, sentence, way_out)


def run_checks(checks: Sequence[Check]) -> list[Finding]:
    """In the order given. A check that does not end is a failure, and so is a LauncherError that it raises.

    Another exception is a defect of the check and ends the launcher. Ctrl-C ends the waiting at once.
    """
    begun = time.monotonic()
    running = [(check, in_daemon(check.look)) for check in checks]
    try:
        return [finding for check, answer in running for finding in _findings(check, answer, begun + check.limit)]
    finally:
        _interrupt([(check.interrupted, answer) for check, answer in running if not answer.done()])


def print_findings(findings: Iterable[Finding]) -> None:
    """To standard error, which leaves standard output to the run."""
    for finding in findings:
        way_out = f"; {finding.way_out}" if finding.way_out else ""
        say(f"{finding.status:>8}  {finding.check}: {finding.sentence}{way_out}")


def first_three(names: Sequence[str]) -> str:
    """`a, b, c and 4 more`."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _findings(check: Check, answer: Future[Finding | list[Finding]], until: float) -> list[Finding]:
    # In short waits: a signal that comes just before the kernel's wait begins does not end it.
    while not answer.done() and (left := until - time.monotonic()) > 0:
        wait([answer], min(left, _NOTICED))
    if not answer.done():
        way_out = (
            "see whether the file system or the server that it asks hangs, or leave the checks out (--skip-preflight)"
        )
        return [failure(check.name, f"did not end within {check.limit:g} s", way_out)]
    try:
        found = answer.result()
    except LauncherError as error:
        sentence, _, way_out = str(error).partition("; ")
        return [failure(check.name, sentence, way_out or "mend that and start again")]
    return [found] if isinstance(found, Finding) else found


def _interrupt(running: Sequence[tuple[threading.Event | None, Future[Finding | list[Finding]]]]) -> None:
    waited_for: list[Future[Finding | list[Finding]]] = []
    for interrupted, answer in running:
        if interrupted is not None:
            interrupted.set()
            waited_for.append(answer)
    wait(waited_for, _CLEAN_UP)

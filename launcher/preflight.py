"""Checks before a start: each one sentence and a way out, run side by side, all reported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum


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


type Check = Callable[[], Finding | list[Finding]]


def ok(check: str, sentence: str) -> Finding:
    return Finding(check, Status.OK, sentence)


def warning(check: str, sentence: str, way_out: str) -> Finding:
    return Finding(check, Status.WARNING, sentence, way_out)


def failure(check: str, sentence: str, way_out: str) -> Finding:
    return Finding(check, Status.FAILURE, sentence, way_out)


def run_checks(checks: Sequence[Check]) -> list[Finding]:
    """In the order given. A check that raises is a defect of the check and ends the launcher."""
    with ThreadPoolExecutor(max_workers=max(1, len(checks))) as pool:
        answers = [future.result() for future in [pool.submit(check) for check in checks]]
    findings: list[Finding] = []
    for answer in answers:
        findings += [answer] if isinstance(answer, Finding) else answer
    return findings


def print_findings(findings: Iterable[Finding]) -> None:
    """To standard error, which leaves standard output to the run."""
    for finding in findings:
        way_out = f"; {finding.way_out}" if finding.way_out else ""
        print(f"{finding.status:>8}  {finding.check}: {finding.sentence}{way_out}", file=sys.stderr)


def first_three(names: Sequence[str]) -> str:
    """`a, b, c and 4 more`."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more

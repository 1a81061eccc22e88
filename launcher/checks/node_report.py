"""Findings on their way from the nodes to the launching machine: merged, and one line of the job's log."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, cast

from launcher.errors import PreflightError
from launcher.preflight import Finding, Status, first_three

SPEC_VARIABLE = "PREFLIGHT_SPEC"
MARK = "PREFLIGHT "
_LAST_LINES = 3


def merge(by_node: Sequence[tuple[str, Sequence[Finding]]]) -> list[Finding]:
    """One finding for what several nodes say in the same words; `by_node` pairs a node's address with its findings."""
    nodes: dict[Finding, list[str]] = {}
    for address, findings in by_node:
        for finding in findings:
            nodes.setdefault(finding, []).append(address)
    return [replace(finding, sentence=f"{_who(finding, at)}: {finding.sentence}") for finding, at in nodes.items()]


def report_line(findings: Sequence[Finding]) -> str:
    return MARK + json.dumps([asdict(finding) for finding in findings])


def parse_findings(log: str) -> list[Finding]:
    """From the log of the job that ran the checks. Raises PreflightError where it ended without an answer."""
    lines = log.splitlines()
    for line in reversed(lines):
        if line.startswith(MARK):
            loaded = cast(list[dict[str, Any]], json.loads(line.removeprefix(MARK)))
            return [Finding(**{**finding, "status": Status(finding["status"])}) for finding in loaded]
    last = " | ".join(line.strip() for line in lines[-_LAST_LINES:]) or "its log is empty"
    raise PreflightError(f"the checks on the nodes ended without an answer: {last}; see `ray job list`, then try again")


def _who(finding: Finding, addresses: Sequence[str]) -> str:
    if len(addresses) == 1:
        return f"node {addresses[0]}"
    if finding.status is Status.OK:
        return f"{len(addresses)} nodes"
    return f"{len(addresses)} nodes ({first_three(addresses)})"

from __future__ import annotations

import pytest

from launcher.checks.node_report import merge, parse_findings, report_line
from launcher.errors import PreflightError
from launcher.preflight import failure, ok, warning


def test_what_all_nodes_say_is_said_once_and_what_one_says_carries_its_address() -> None:
    same, lost = ok("GPUs", "8 are there"), failure("paths", "/x does not exist", "make it")
    findings = merge([("10.0.0.1", [same]), ("10.0.0.2", [same, lost])])
    assert [finding.sentence for finding in findings] == ["2 nodes: 8 are there", "node 10.0.0.2: /x does not exist"]


def test_a_failure_of_several_nodes_names_them() -> None:
    lost = failure("paths", "/x does not exist", "make it")
    (finding,) = merge([(f"10.0.0.{last}", [lost]) for last in range(1, 6)])
    assert finding.sentence == "5 nodes (10.0.0.1, 10.0.0.2, 10.0.0.3 and 2 more): /x does not exist"


def test_findings_come_back_from_a_log_with_other_lines_around() -> None:
    findings = [ok("a", "is\nright"), warning("b", 'is "odd"', "look"), failure("c", "is wrong", "mend it")]
    log = f"INFO connecting\n{report_line(findings)}\n(raylet) bye\n"
    assert parse_findings(log) == findings


def test_a_log_without_an_answer_ends_the_preflight_with_its_last_lines() -> None:
    with pytest.raises(PreflightError, match="No module named 'launcher'"):
        parse_findings("Traceback\nModuleNotFoundError: No module named 'launcher'\n")

"""Agents that no server knows are named before a run, and a server that does not tell is only warned about."""

from __future__ import annotations

import pytest

from launcher.checks.agent_names import check_agents, check_asked, check_own_agents
from launcher.checks.prompts import Asked
from launcher.preflight import Status
from tests.harbor_service.harbor_server_process import AgentServerProcess
from tests.launcher.checks.http_answers import http_answers

SOUND = ("shell", "mini-swe-agent", "oracle", "tests.tasks.forging_agent:ForgingAgent")


def test_the_real_server_runs_what_it_knows_and_names_what_it_does_not(agent_server: AgentServerProcess) -> None:
    assert check_agents(agent_server.url, SOUND, {}).status is Status.OK
    finding = check_agents(agent_server.url, ("shell", "shel", "claude-code", "no.module:Agent"), {})
    assert finding.status is Status.FAILURE
    assert "it refuses shel, claude-code, no.module:Agent" in finding.sentence
    assert "known: shell, mini-swe-agent" in finding.sentence and "installs itself" in finding.sentence
    assert "--agent-name" in finding.way_out


def test_rows_ask_for_their_tasks_and_their_agents(agent_server: AgentServerProcess) -> None:
    findings = check_asked(agent_server.url, Asked(("a", "x1"), ("shel",)), {})
    assert [finding.status for finding in findings] == [Status.FAILURE, Status.FAILURE]
    assert check_asked(agent_server.url, Asked(), {}) == []


def test_the_server_that_is_not_started_yet_is_judged_by_its_rules() -> None:
    (finding,) = check_own_agents(SOUND)
    assert finding.status is Status.OK
    (finding,) = check_own_agents(("shell", "shel"))
    assert finding.status is Status.FAILURE
    assert "unknown agent_name 'shel'" in finding.sentence


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, '{"missing": [], "broken": {}}'),
        (200, '{"refused_agents": ["shell"]}'),
        (200, '{"refused_agents": {"another": "x"}}'),
        (200, "hello"),
        (404, ""),
        (422, '{"detail": "x"}'),
        (500, ""),
    ],
)
def test_a_server_that_does_not_tell_is_warned_about(status: int, body: str) -> None:
    with http_answers({"/tasks": (status, body)}) as answers:
        finding = check_agents(answers.url, ("shell",), {})
    assert finding.status is Status.WARNING
    assert "make sure that it can run shell" in finding.way_out


def test_a_server_that_is_gone_is_a_warning_beside_its_failure() -> None:
    with http_answers({}) as answers:
        pass
    assert check_agents(answers.url, ("shell",), {}).status is Status.WARNING

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from launcher.checks.agent_server import check_agent_server, check_sandbox_lifetime, check_tasks, judge_health
from launcher.preflight import Finding, Status
from tests.harbor_service.harbor_server_process import AgentServerProcess
from tests.launcher.checks.endless_server import HEAD, endless_server
from tests.launcher.checks.http_answers import http_answers

TRIALS = 32
OURS = {"agent_timeout": 5400, "trial_timeout": 6960, "max_concurrent": 32, "environment": "local"}


def judge(
    health: dict[str, Any], environment: dict[str, str] | None = None, most_in_flight: int = TRIALS
) -> dict[str, Finding]:
    findings = judge_health(health, TRIALS, most_in_flight, environment or {})
    return {finding.check.removeprefix("agent server: "): finding for finding in findings}


def test_the_real_server_carries_a_rollout_of_its_size(agent_server: AgentServerProcess) -> None:
    findings = check_agent_server(agent_server.url, TRIALS, TRIALS, {"AGENT_TRIAL_TIMEOUT": "7200"})
    assert {finding.status for finding in findings} == {Status.OK}


def test_a_server_that_is_not_there_fails_with_the_cause() -> None:
    with http_answers({}) as answers:
        pass
    (finding,) = check_agent_server(answers.url, TRIALS, TRIALS, {})
    assert finding.status is Status.FAILURE
    assert answers.url in finding.sentence and "refused" in finding.sentence


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [(200, "hello", Status.WARNING), (200, "[]", Status.WARNING), (404, "", Status.WARNING), (500, "", Status.FAILURE)],
)
def test_another_kind_of_server_is_warned_about_and_a_broken_one_fails(
    status: int, body: str, expected: Status
) -> None:
    with http_answers({"/health": (status, body)}) as answers:
        (finding,) = check_agent_server(answers.url, TRIALS, TRIALS, {})
    assert finding.status is expected


HUGE = "1" * 400


@pytest.mark.parametrize(
    "body",
    [
        '{"max_concurrent": NaN, "trial_timeout": NaN, "agent_timeout": NaN}',
        '{"max_concurrent": 1e-320, "trial_timeout": 1e999, "agent_timeout": -Infinity}',
        f'{{"max_concurrent": {HUGE}, "trial_timeout": {HUGE}, "agent_timeout": -5, "environment": [{HUGE}]}}',
        f'{{"max_concurrent": {HUGE * 20}, "trial_timeout": null}}',
        '{"max_concurrent": 0, "environment": {}}',
        '{"max_concurrent": -1, "trial_timeout": "long"}',
        "[" * 100_000,
        '{"a":' * 100_000,
        '{"max_concurrent": ' + " " * 2**20 + "32}",
    ],
)
def test_an_answer_that_makes_no_sense_is_warned_about(body: str) -> None:
    with http_answers({"/health": (200, body)}) as answers:
        findings = check_agent_server(answers.url, TRIALS, TRIALS, {}, (146, 1440))
    wrong = [finding for finding in findings if finding.check != "agent server" or finding.status is not Status.OK]
    assert {finding.status for finding in wrong} == {Status.WARNING}


def test_an_answer_that_never_ends_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launcher.checks.agent_server.TIMEOUT", 0.3)
    with endless_server(HEAD, b" ", 0.01) as address:
        (finding,) = check_agent_server(f"http://{address}", TRIALS, TRIALS, {})
        assert finding.status is Status.FAILURE and "no whole answer within 0.3 s" in finding.sentence
        assert check_tasks(f"http://{address}", ["a"], {}).status is Status.WARNING


def test_fields_that_health_lacks_are_warnings_and_never_failures() -> None:
    found = judge({"status": "ok"})
    assert {finding.status for finding in found.values()} == {Status.WARNING}
    assert {finding.status for finding in judge({"max_concurrent": "many", "trial_timeout": True}).values()} == {
        Status.WARNING
    }


@pytest.mark.parametrize(
    ("content", "expected"),
    [("tok\n", Status.OK), ("not-it\n", Status.FAILURE), ("", Status.FAILURE), (None, Status.FAILURE)],
)
def test_a_server_with_a_token_is_asked_with_it(tmp_path: Path, content: str | None, expected: Status) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
    with http_answers({"/health": (200, json.dumps(OURS))}, token="tok") as answers:
        finding = check_agent_server(answers.url, TRIALS, TRIALS, {"AGENT_SERVER_TOKEN_FILE": str(file)})[0]
    assert finding.status is expected
    assert "not-it" not in finding.sentence


@pytest.mark.parametrize(
    ("room", "most_in_flight", "expected", "words"),
    [
        (31, 32, Status.FAILURE, ("31", "32")),
        (32, 32, Status.OK, ()),
        (32, 40, Status.WARNING, ("32", "40")),
        (40, 40, Status.OK, ()),
    ],
)
def test_a_server_without_room_for_a_rollout_fails_and_one_without_room_for_all_in_flight_is_warned_about(
    room: int, most_in_flight: int, expected: Status, words: tuple[str, ...]
) -> None:
    finding = judge({"max_concurrent": room}, most_in_flight=most_in_flight)["trials at once"]
    assert finding.status is expected
    assert all(word in finding.sentence for word in words)


@pytest.mark.parametrize(
    ("health", "patience", "words"),
    [
        ({"agent_timeout": 5400}, "3600", ("5400", "3600")),
        ({"agent_timeout": 5400}, "7200", None),
        ({"agent_timeout": 5400, "trial_timeout": 6960}, "6000", ("5400", "6960", "6000")),
        ({"agent_timeout": 5400, "trial_timeout": 6960}, "7200", None),
        ({"agent_timeout": 5400, "trial_timeout": 600}, "3600", ("5400", "3600")),
        ({"agent_timeout": 5400, "trial_timeout": None}, "3600", ("5400", "3600")),
        ({"agent_timeout": 5400}, "soon", None),
        ({"agent_timeout": 60, "trial_timeout": 9000}, "", ("9000", "7200")),
    ],
)
def test_a_trial_longer_than_the_run_waits_fails_with_both_numbers(
    health: dict[str, Any], patience: str, words: tuple[str, ...] | None
) -> None:
    finding = judge(health, {"AGENT_TRIAL_TIMEOUT": patience})["time limits"]
    assert finding.status is (Status.OK if words is None else Status.FAILURE)
    assert all(word in finding.sentence for word in words or ())


@pytest.mark.parametrize(("most_in_flight", "expected"), [(32, Status.OK), (33, Status.WARNING)])
def test_the_wait_in_the_servers_queue_counts(most_in_flight: int, expected: Status) -> None:
    health = {"trial_timeout": 4000, "max_concurrent": 32}
    finding = judge(health, {"AGENT_TRIAL_TIMEOUT": "7200"}, most_in_flight)["time limits"]
    assert finding.status is expected
    if expected is Status.WARNING:
        assert "33 trials under way and 32 at once one can wait 4000 s" in finding.sentence
        assert "above 8000" in finding.way_out and "--max-concurrent 33" in finding.way_out


def test_a_trial_without_end_is_warned_about() -> None:
    assert judge({"agent_timeout": 60, "trial_timeout": None})["time limits"].status is Status.WARNING


@pytest.mark.parametrize(
    ("health", "most_in_flight", "expected", "words"),
    [
        ({"environment": "docker", "max_concurrent": 32}, 32, Status.WARNING, "give about 31"),
        ({"environment": "docker", "max_concurrent": 30}, 32, Status.OK, ""),
        ({"environment": "docker", "max_concurrent": 64}, 30, Status.OK, ""),
        ({"environment": "daytona", "max_concurrent": 256}, 256, Status.OK, ""),
        ({"max_concurrent": 32}, 32, Status.WARNING, "if its sandboxes are Docker containers"),
        ({}, 31, Status.WARNING, "if its sandboxes are Docker containers"),
    ],
)
def test_more_docker_sandboxes_than_docker_has_networks_are_warned_about(
    health: dict[str, Any], most_in_flight: int, expected: Status, words: str
) -> None:
    finding = judge(health, most_in_flight=most_in_flight)["sandboxes"]
    assert finding.status is expected
    assert words in finding.sentence
    assert expected is Status.OK or "default-address-pools" in finding.way_out


@pytest.mark.parametrize(
    ("stop", "delete", "expected"),
    [
        (146, 1440, Status.OK),
        (0, -1, Status.OK),  # never
        (15, 1440, Status.FAILURE),
        (146, 0, Status.FAILURE),
        (15, None, Status.FAILURE),
        (None, None, Status.WARNING),
        (146, None, Status.WARNING),
    ],
)
def test_sandboxes_that_end_before_their_trial_fail_with_the_numbers(
    stop: int | None, delete: int | None, expected: Status
) -> None:
    said = {"sandbox_auto_stop_minutes": stop, "sandbox_auto_delete_minutes": delete}
    finding = check_sandbox_lifetime({key: value for key, value in said.items() if value is not None}, 146, 1440)
    assert finding.status is expected
    if expected is not Status.OK:
        assert "146 and 1440" in finding.sentence
        assert "--environment-option auto_stop_interval_mins=146" in finding.way_out


def test_a_server_that_takes_the_lifetime_of_each_request_is_fine() -> None:
    health = {"sandbox_auto_stop_minutes": None, "sandbox_auto_delete_minutes": 2880}
    assert check_sandbox_lifetime(health, 146, 1440).status is Status.OK


def test_a_server_whose_sandboxes_are_not_those_of_the_provider_is_warned_about_where_that_matters(
    agent_server: AgentServerProcess,
) -> None:
    finding = check_agent_server(agent_server.url, TRIALS, TRIALS, {}, (146, 1440))[-1]
    assert finding.check == "agent server: sandbox lifetime"
    assert finding.status is Status.WARNING
    assert "its sandboxes are local" in finding.sentence and "--environment daytona" in finding.way_out


def test_the_real_server_has_the_tasks_that_it_has(agent_server: AgentServerProcess) -> None:
    assert check_tasks(agent_server.url, ["a", "b"], {}).status is Status.OK


def test_tasks_that_are_missing_or_broken_fail_with_count_and_the_first_three(
    agent_server: AgentServerProcess,
) -> None:
    finding = check_tasks(agent_server.url, ["a", "x1", "x2", "x3", "x4", "bad"], {})
    assert finding.status is Status.FAILURE
    assert "4 are missing: x1, x2, x3 and 1 more" in finding.sentence
    assert "1 are broken: bad (" in finding.sentence


def test_many_tasks_are_asked_for_in_several_calls() -> None:
    ids = [f"task-{number}" for number in range(450)]
    with http_answers({"/tasks": (200, '{"missing": [], "broken": {}}')}) as answers:
        assert check_tasks(answers.url, ids, {}).status is Status.OK
    assert [name for _, body in answers.asked for name in body["instance_ids"]] == ids
    assert len(answers.asked) > 1


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, ""),
        (405, ""),
        (200, "hello"),
        (200, "{}"),
        (500, ""),
        (200, '{"missing": [1]}'),
        (200, '{"missing": [null]}'),
        (200, '{"missing": [["a"]]}'),
        (200, '{"missing": ["another"]}'),
        (200, '{"missing": [], "broken": ["a"]}'),
        (200, '{"missing": [], "broken": {"another": "x"}}'),
        (200, '{"missing": ' + "[" * 100_000),
    ],
)
def test_a_server_without_the_route_is_warned_about(status: int, body: str) -> None:
    with http_answers({"/tasks": (status, body)}) as answers:
        assert check_tasks(answers.url, ["a"], {}).status is Status.WARNING


def test_a_server_that_is_gone_is_reported_once_as_failure_and_its_tasks_as_warning() -> None:
    with http_answers({}) as answers:
        pass
    assert check_tasks(answers.url, ["a"], {}).status is Status.WARNING

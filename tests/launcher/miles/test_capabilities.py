from __future__ import annotations

from pathlib import Path

import pytest

from launcher.errors import OptionsError
from launcher.miles.capabilities import NEWEST, OPTIONAL, REQUIRED, SessionPorts, adapt, grouped, read_capabilities
from tests.launcher.miles import sources

SESSIONS = (
    *("--use-session-server", "--session-server-port", "30000", "--session-server-workers", "32"),
    *("--session-server-external-host", "trainer"),
)


def test_without_a_miles_the_newest_is_assumed(tmp_path: Path) -> None:
    assert read_capabilities(tmp_path) == NEWEST
    assert adapt(SESSIONS, {}, NEWEST) == (SESSIONS, {}, [])


def test_the_newest_takes_workers_and_the_external_host(tmp_path: Path) -> None:
    can = read_capabilities(sources.newest(tmp_path))
    assert can.session_ports is SessionPorts.WORKERS
    assert adapt(SESSIONS, {}, can) == (SESSIONS, {}, [])


def test_august_takes_a_half_open_range_and_the_host_by_environment(tmp_path: Path) -> None:
    arguments, environment, notes = adapt(SESSIONS, {"A": "1"}, read_capabilities(sources.august(tmp_path)))
    assert arguments == ("--use-session-server", "--session-server-port", "30000", "30032")
    assert environment == {"A": "1", "MILES_ROUTER_EXTERNAL_HOST": "trainer"}
    assert len(notes) == 2


def test_may_starts_one_session_server_and_that_is_said(tmp_path: Path) -> None:
    arguments, _, notes = adapt(SESSIONS, {}, read_capabilities(sources.may(tmp_path)))
    assert arguments == ("--use-session-server", "--session-server-port", "30000")
    assert "one session server, not 32" in notes[0]


def test_a_miles_that_takes_tool_messages_alone_is_told_of_users(tmp_path: Path) -> None:
    can = read_capabilities(sources.may_package(tmp_path))
    arguments, _, notes = adapt(SESSIONS, {}, can)
    assert arguments[-3:] == ("--tito-allowed-append-roles", "tool", "user")
    assert any("lets agents send what a command printed" in note for note in notes)
    chosen = (*SESSIONS, "--tito-allowed-append-roles", "tool")
    assert adapt(chosen, {}, can)[0].count("--tito-allowed-append-roles") == 1
    assert "--tito-allowed-append-roles" not in adapt(("--num-rollout", "3"), {}, can)[0]


def test_a_miles_that_must_be_told_to_call_our_functions_is_told(tmp_path: Path) -> None:
    can = read_capabilities(sources.may_package(tmp_path))
    _, environment, _ = adapt(SESSIONS, {}, can)
    assert environment == {"MILES_EXPERIMENTAL_ROLLOUT_REFACTOR": "1", "MILES_ROUTER_EXTERNAL_HOST": "trainer"}
    _, environment, _ = adapt(SESSIONS, {"MILES_EXPERIMENTAL_ROLLOUT_REFACTOR": "0"}, can)
    assert environment["MILES_EXPERIMENTAL_ROLLOUT_REFACTOR"] == "0"


def test_what_a_run_can_do_without_is_left_out_and_named(tmp_path: Path) -> None:
    can = read_capabilities(sources.may(tmp_path))
    arguments, _, notes = adapt(("--use-miles-dashboard", "--num-rollout", "3"), {}, can)
    assert arguments == ("--num-rollout", "3")
    assert notes == ["this Miles has no --use-miles-dashboard, left out: no dashboard of Miles"]


def test_what_a_run_is_about_is_never_left_out(tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match="--fully-async"):
        adapt(("--fully-async",), {}, read_capabilities(sources.may(tmp_path)))


def test_the_flags_it_knows_are_those_of_miles() -> None:
    known = set(sources.NAMES["miles"]) | set(sources.NAMES["miles_newer"])
    assert OPTIONAL.keys() | REQUIRED <= known
    assert not OPTIONAL.keys() & REQUIRED


def test_a_source_that_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    sources.august(tmp_path)
    (tmp_path / "miles" / "broken.py").write_bytes(b"\xff\xfe '--session-server-workers")
    (tmp_path / "miles" / "syntax.py").write_text("def (: '--session-server-port'")
    assert read_capabilities(tmp_path).session_ports is SessionPorts.RANGE


def test_values_stay_with_their_flag() -> None:
    assert list(grouped(("--a", "--b", "1", "-2", "--c", "x y"))) == [
        ("--a", []),
        ("--b", ["1", "-2"]),
        ("--c", ["x y"]),
    ]

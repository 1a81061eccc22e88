from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path

import pytest

from launcher.checks.ports import is_free
from launcher.checks.way_back import check_way_back
from launcher.preflight import Status
from tests.harbor_service.harbor_server_process import AgentServerProcess
from tests.launcher.checks.free_ports import free_span
from tests.launcher.checks.http_answers import http_answers


def test_the_real_agent_server_reaches_the_first_and_the_last_port(agent_server: AgentServerProcess) -> None:
    first = free_span(32)
    (finding,) = check_way_back("0.0.0.0", "127.0.0.1", (first, first + 31), agent_server.url, {})
    assert finding.status is Status.OK
    assert f"127.0.0.1:{first} and {first + 31}" in finding.sentence
    assert is_free(first) and is_free(first + 31)


def test_a_host_under_which_nothing_listens_fails_for_each_port(agent_server: AgentServerProcess) -> None:
    first = free_span(2)
    findings = check_way_back("127.0.0.1", "127.0.0.2", (first, first + 1), agent_server.url, {})
    assert [finding.status for finding in findings] == [Status.FAILURE] * 2
    assert f"127.0.0.2:{first}" in findings[0].sentence and "ConnectError" in findings[0].sentence
    assert "--session-server-external-host" in findings[0].way_out and "firewall" in findings[0].way_out


def test_a_host_that_is_another_machine_fails(agent_server: AgentServerProcess) -> None:
    port = free_span(1)
    with http_answers({"*": (200, "hello")}, host="127.0.0.2", port=port):
        (finding,) = check_way_back("127.0.0.1", "127.0.0.2", (port, port), agent_server.url, {})
    assert finding.status is Status.FAILURE
    assert "something else than this machine" in finding.sentence


def test_a_port_that_is_taken_is_left_to_the_check_of_ports(agent_server: AgentServerProcess) -> None:
    port = free_span(1)
    with http_answers({}, port=port):
        (finding,) = check_way_back("127.0.0.1", "127.0.0.1", (port, port), agent_server.url, {})
    assert finding.status is Status.WARNING
    assert "taken" in finding.sentence


def test_an_address_to_bind_that_is_not_this_machines_fails(agent_server: AgentServerProcess) -> None:
    port = free_span(1)
    (finding,) = check_way_back("192.0.2.77", "127.0.0.1", (port, port), agent_server.url, {})
    assert finding.status is Status.FAILURE
    assert "--miles-host-ip" in finding.way_out


@pytest.mark.parametrize("status", [404, 405, 403, 401, 500])
def test_an_agent_server_that_does_not_probe_is_warned_about_once(status: int) -> None:
    first = free_span(2)
    with http_answers({"/probe": (status, "")}) as answers:
        (finding,) = check_way_back("127.0.0.1", "127.0.0.1", (first, first + 1), answers.url, {})
    assert finding.status is Status.WARNING
    assert str(status) in finding.sentence


def test_an_agent_server_that_cannot_be_reached_from_this_machine_fails() -> None:
    with http_answers({}) as answers:
        pass
    port = free_span(1)
    (finding,) = check_way_back("127.0.0.1", "127.0.0.1", (port, port), answers.url, {})
    assert finding.status is Status.FAILURE
    assert "cannot be reached from here" in finding.sentence


def test_whoever_connects_first_and_stays_silent_does_not_block_the_probe(agent_server: AgentServerProcess) -> None:
    port = free_span(1)
    ended = threading.Event()
    silent: list[socket.socket] = []

    def connect_and_say_nothing() -> None:
        while not ended.is_set() and not silent:
            with contextlib.suppress(OSError):
                silent.append(socket.create_connection(("127.0.0.1", port)))

    thread = threading.Thread(target=connect_and_say_nothing)
    thread.start()
    try:
        (finding,) = check_way_back("127.0.0.1", "127.0.0.1", (port, port), agent_server.url, {})
    finally:
        ended.set()
        thread.join()
        for connection in silent:
            connection.close()
    assert finding.status is Status.OK


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
def test_the_way_back_over_ipv6(agent_server: AgentServerProcess) -> None:
    port = free_span(1)
    (finding,) = check_way_back("::1", "::1", (port, port), agent_server.url, {})
    assert finding.status is Status.OK


def test_the_probe_carries_the_token(tmp_path: Path) -> None:
    port = free_span(1)
    reply = '{"reached": false, "body": "", "error": "no route"}'
    with http_answers({"/probe": (200, reply)}, token="tok") as answers:
        (finding,) = check_way_back(
            "127.0.0.1", "127.0.0.1", (port, port), answers.url, {"Authorization": "Bearer tok"}
        )
    assert finding.status is Status.FAILURE
    assert "no route" in finding.sentence

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from launcher.checks.ports import check_ports, is_free
from launcher.preflight import Status
from tests.launcher.checks.free_ports import free_span


@contextmanager
def taken(port: int, host: str = "127.0.0.1") -> Iterator[None]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((host, port))
        listener.listen(1)
        yield


def test_free_ports_pass_and_stay_free() -> None:
    first = free_span(6)
    ports = {"session servers": (first, first + 3), "router": (first + 4, first + 4)}
    (finding,) = check_ports(ports, f"http://127.0.0.1:{first + 5}")
    assert finding.status is Status.OK
    assert is_free(first)


def test_a_port_in_the_middle_of_the_range_that_is_taken_fails_with_its_holder() -> None:
    first = free_span(5)
    with taken(first + 2):
        (finding,) = check_ports({"session servers": (first, first + 3), "router": (first + 4, first + 4)}, None)
    assert finding.status is Status.FAILURE
    assert f"1 of the 4 ports of session servers ({first}-{first + 3}) are taken" in finding.sentence
    assert f"{first + 2} by pid {os.getpid()} (" in finding.sentence
    assert "--session-server-port" in finding.way_out


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
@pytest.mark.parametrize("host", ["::", "::1"])
def test_a_listener_of_ipv6_alone_takes_the_port(host: str) -> None:
    port = free_span(1)
    with taken(port, host):
        (finding,) = check_ports({"router": (port, port)}, None)
    assert finding.status is Status.FAILURE
    assert f"{port} by pid {os.getpid()} (" in finding.sentence


def test_every_service_with_a_busy_port_is_named() -> None:
    first = free_span(2)
    with taken(first), taken(first + 1, "0.0.0.0"):
        findings = check_ports({"router": (first, first), "Prometheus": (first + 1, first + 1)}, None)
    assert [finding.sentence.split()[3] for finding in findings] == ["router", "Prometheus"]


def test_ranges_that_overlap_fail() -> None:
    first = free_span(4)
    (finding,) = check_ports({"session servers": (first, first + 3), "router": (first + 3, first + 3)}, None)
    assert finding.status is Status.FAILURE
    assert f"session servers on {first}-{first + 3} and router on {first + 3} overlap" in finding.sentence
    assert "--sglang-router-port" in finding.way_out


def test_the_agent_servers_own_port_among_the_session_ports_fails_with_a_free_port() -> None:
    first = free_span(32)
    ports = {"session servers": (first, first + 31)}
    with taken(first):
        (finding,) = check_ports(ports, f"http://localhost:{first}")
    assert finding.status is Status.FAILURE
    assert f"agent server on this host at port {first}, session servers on {first}-{first + 31}" in finding.sentence
    words = finding.way_out.replace("`", " ").replace(",", " ").split()
    suggested = int(words[words.index("--port") + 1])
    assert is_free(suggested) and not first <= suggested <= first + 31
    moved = int(words[words.index("--session-server-port") + 1])
    assert all(is_free(port) for port in range(moved, moved + 32)) and moved > first


def test_the_same_port_on_an_agent_server_elsewhere_is_no_clash() -> None:
    first = free_span(1)
    (finding,) = check_ports({"router": (first, first)}, f"http://192.0.2.77:{first}")
    assert finding.status is Status.OK

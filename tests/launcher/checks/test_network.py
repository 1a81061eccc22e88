from __future__ import annotations

import socket

import pytest

from launcher.checks.network import check_external_host, is_this_machine
from launcher.preflight import Status

ELSEWHERE = "http://192.0.2.77:11000"  # an address reserved for documentation


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "0.0.0.0"])
def test_loopback_fails_when_the_agent_server_is_elsewhere_and_passes_when_it_is_here(host: str) -> None:
    finding = check_external_host(host, ELSEWHERE)
    assert finding.status is Status.FAILURE
    assert "loopback" in finding.sentence and "192.0.2.77" in finding.sentence
    assert check_external_host(host, "http://localhost:11000").status is Status.OK


def test_an_address_that_is_not_loopback_passes() -> None:
    assert check_external_host("192.0.2.78", ELSEWHERE).status is Status.OK


def test_a_name_that_does_not_resolve_fails() -> None:
    finding = check_external_host("no-such-host.invalid", ELSEWHERE)
    assert finding.status is Status.FAILURE
    assert "does not resolve" in finding.sentence


def test_this_machine_is_known_by_loopback_and_by_the_addresses_of_its_interfaces() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.77", 9))  # sends nothing; picks the interface that would be taken
            own = probe.getsockname()[0]
        except OSError:  # a machine without a route
            own = "127.0.0.1"
    assert is_this_machine(own)
    assert is_this_machine("localhost")
    assert not is_this_machine("192.0.2.77")

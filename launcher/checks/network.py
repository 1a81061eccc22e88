"""Names and addresses: what they resolve to, and whether that is this machine."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

from launcher.daemon_call import in_daemon
from launcher.preflight import Finding, failure, ok

_RESOLVE_TIMEOUT = 3.0  # seconds; the resolver's own is longer and cannot be set
_NAME = "external host"


def check_external_host(host: str, agent_server_url: str) -> Finding:
    """`host` is what the agent server's sandboxes are given as the address of the session servers."""
    way_out = "name an address of this cluster that the agent server reaches with --session-server-external-host"
    addresses = resolve(host)
    if not addresses:
        return failure(_NAME, f"{host} does not resolve", way_out)
    server = urlsplit(agent_server_url).hostname or ""
    if any(_leads_nowhere_else(address) for address in addresses) and not is_this_machine(server):
        return failure(_NAME, f"{host} is loopback, and the agent server is on another machine ({server})", way_out)
    return ok(_NAME, f"{host} is {addresses[0]}")


def is_this_machine(host: str) -> bool:
    """Whether a name resolves to loopback or to an address of one of this machine's interfaces."""
    return any(ipaddress.ip_address(address).is_loopback or is_own_address(address) for address in resolve(host))


def resolve(host: str) -> list[str]:
    """Addresses without zone, empty where there is none or the resolver takes more than three seconds."""
    found = in_daemon(lambda: socket.getaddrinfo(host, None, type=socket.SOCK_STREAM))
    try:
        return list(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found.result(_RESOLVE_TIMEOUT)))
    except (OSError, UnicodeError):  # TimeoutError among them
        return []


def _leads_nowhere_else(address: str) -> bool:
    parsed = ipaddress.ip_address(address)
    return parsed.is_loopback or parsed.is_unspecified


def is_own_address(address: str) -> bool:
    """Whether it can be bound, which only an address of this machine can."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True

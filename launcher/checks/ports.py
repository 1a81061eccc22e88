"""The plan's ports: apart from each other and from the agent server's, and free on this machine."""

from __future__ import annotations

import contextlib
import errno
import itertools
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from launcher.checks.network import is_this_machine
from launcher.preflight import Finding, failure, first_three, ok

NAME = "ports"
OPTIONS: Mapping[str, str] = {
    "session servers": "--session-server-port",
    "router": "--sglang-router-port",
    "Prometheus": "--prometheus-port",
}
_AGENT_SERVER_DEFAULT = 11000
_HIGHEST = 65535

type Range = tuple[int, int]  # first and last, both included


def check_ports(ports: Mapping[str, Range], agent_server_url: str | None) -> list[Finding]:
    """`ports` by the service that takes them; every clash and every busy port is named."""
    findings = _overlaps(ports)
    agent_port = _port_here(agent_server_url) if agent_server_url else None
    if agent_port is not None:
        findings += _agent_server_clash(ports, agent_port)
    for service, (first, last) in ports.items():
        busy = [port for port in range(first, last + 1) if port != agent_port and not is_free(port)]
        if busy:
            findings.append(_busy(service, (first, last), busy))
    if findings:
        return findings
    return [ok(NAME, ", ".join(f"{service} {_text(span)}" for service, span in ports.items()) + " are free")]


def is_free(port: int) -> bool:
    """Tried as a server would: on all addresses, past connections of an earlier server that are only fading out."""
    return _can_listen(socket.AF_INET, "0.0.0.0", port) and _can_listen(socket.AF_INET6, "::", port)


def _can_listen(family: socket.AddressFamily, host: str, port: int) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                # Else it would ask for the IPv4 address a second time.
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind((host, port))
            probe.listen(1)
    except OSError as error:
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            return False
        if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):  # a machine without this family
            raise
    return True


def holders(ports: Iterable[int], proc: Path = Path("/proc")) -> dict[int, str]:
    """`pid 4711 (python3)` by port, as far as this user may look."""
    inodes = _inodes(set(ports), proc)
    found: dict[int, str] = {}
    for process in proc.glob("[0-9]*") if inodes else ():
        # Processes end while we look, and those of other users are closed to us.
        with contextlib.suppress(OSError):
            for descriptor in (process / "fd").iterdir():
                port = inodes.get(descriptor.readlink().name)
                if port is not None:
                    found[port] = f"pid {process.name} ({(process / 'comm').read_text().strip()})"
    return found


def _inodes(ports: set[int], proc: Path) -> dict[str, int]:
    """From `socket:[12345]` to the local port it has."""
    inodes: dict[str, int] = {}
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (proc / "net" / table).read_text().splitlines()[1:]:
                fields = line.split()
                port = int(fields[1].rpartition(":")[2], 16)
                if port in ports and fields[9] != "0":
                    inodes[f"socket:[{fields[9]}]"] = port
    return inodes


def _busy(service: str, span: Range, busy: list[int]) -> Finding:
    known = holders(busy)
    named = [f"{port} by {known.get(port, 'a process that this user may not see')}" for port in busy]
    option = OPTIONS.get(service, "its option")
    return failure(
        NAME,
        f"{len(busy)} of the {span[1] - span[0] + 1} ports of {service} ({_text(span)}) are taken: {first_three(named)}"
        if span[1] > span[0]
        else f"the port of {service} is taken: {named[0]}",
        f"end what holds it if it is yours, or choose another {option}",
    )


def _overlaps(ports: Mapping[str, Range]) -> list[Finding]:
    return [
        failure(
            NAME,
            f"{one} on {_text(ports[one])} and {other} on {_text(ports[other])} overlap",
            f"choose another {OPTIONS.get(other, 'port for ' + other)}",
        )
        for one, other in itertools.combinations(ports, 2)
        if ports[one][0] <= ports[other][1] and ports[other][0] <= ports[one][1]
    ]


def _agent_server_clash(ports: Mapping[str, Range], agent_port: int) -> list[Finding]:
    taken = {port for first, last in ports.values() for port in range(first, last + 1)} | {agent_port}
    findings: list[Finding] = []
    for service, (first, last) in ports.items():
        if first <= agent_port <= last:
            other = _free_span(1, _AGENT_SERVER_DEFAULT, taken)
            moved = _free_span(last - first + 1, agent_port + 1, taken)
            findings.append(
                failure(
                    NAME,
                    f"agent server on this host at port {agent_port}, {service} on {_text((first, last))}",
                    f"port {other} is free: `python agent_server.py --port {other}`, or "
                    f"{OPTIONS.get(service, 'another port')} {moved}",
                )
            )
    return findings


def _free_span(length: int, start: int, taken: set[int]) -> int:
    """First port of the next `length` that nobody has."""
    run = 0
    for port in range(start, _HIGHEST + 1):
        run = run + 1 if port not in taken and is_free(port) else 0
        if run == length:
            return port - length + 1
    return start


def _port_here(url: str) -> int | None:
    parts = urlsplit(url)
    if not parts.hostname or not is_this_machine(parts.hostname):
        return None
    return parts.port or (443 if parts.scheme == "https" else 80)


def _text(span: Range) -> str:
    return str(span[0]) if span[0] == span[1] else f"{span[0]}-{span[1]}"

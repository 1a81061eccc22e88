"""Hosts and addresses as options and variables name them."""

from __future__ import annotations

import ipaddress
import re
import socket

_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST_NAME = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*\.?\Z")


def is_address(text: str) -> bool:
    """A numeric address, without brackets and port."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_host(text: str) -> bool:
    """A name that DNS could hold, or a numeric address."""
    return _HOST_NAME.match(text) is not None or is_address(text)


def own_address(told: str | None) -> str:
    """How others reach this machine: `told`, what its services report, else what its name resolves to."""
    if told and told not in ("0.0.0.0", "::"):
        return told
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"

"""Which Ray cluster a job goes to."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from launcher.errors import OptionsError
from launcher.secrets import has_credentials

LOCAL_DASHBOARD = "http://127.0.0.1:8265"
_OPTION = "--ray-address"
_FORMS = "give http://HOST:8265 (the dashboard), HOST:6379 (the head's own port) or auto"


def existing_cluster(ray_address: str | None, environment: Mapping[str, str]) -> str | None:
    """Address of a cluster that already runs, or None: this launcher starts a head of its own.

    Raises OptionsError for an address that no job can be submitted to. Nothing is contacted.
    """
    if ray_address:
        return _validated(ray_address.strip())
    if environment.get("MILES_SCRIPT_EXTERNAL_RAY", "").strip().lower() in ("1", "true"):
        return LOCAL_DASHBOARD
    return None


def _validated(address: str) -> str | None:
    if address == "local":  # Ray's own word for "a new one"
        return None
    if address == "auto":
        return address
    if has_credentials(address) or "@" in address:
        raise OptionsError(
            f"{_OPTION} carries a user or password, which would end up in logs; give it without them (a cluster with "
            "token authentication takes RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH)"
        )
    scheme, separator, _ = address.partition("://")
    if separator and scheme == "ray":
        raise OptionsError(
            f"{_OPTION} {address} is a Ray Client address, which runs the driver here instead of on the cluster; "
            f"{_FORMS}"
        )
    if separator and scheme not in ("http", "https"):
        raise OptionsError(f"{_OPTION} {address}: no jobs are submitted over {scheme}://; {_FORMS}")
    try:
        parts = urlsplit(address if separator else f"//{address}")
        port = parts.port
    except ValueError:
        raise OptionsError(f"{_OPTION} {address!r} is not an address; {_FORMS}") from None
    if not parts.hostname or port == 0 or parts.query or parts.fragment or address.split() != [address]:
        raise OptionsError(f"{_OPTION} {address!r} is not an address; {_FORMS}")
    if not separator and (port is None or parts.path):
        raise OptionsError(f"{_OPTION} {address!r} names no port; {_FORMS}")
    return address.rstrip("/")

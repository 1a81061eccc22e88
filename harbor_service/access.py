"""Who may call: bearer token for every route, admin secret for /flush."""

import hmac
import ipaddress
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import JSONResponse

from harbor_service.secret import Secret

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


class Access:
    """ASGI layer in front of the routes; refuses before a body is read.

    `token` opens every route. `admin_secret` opens /flush; with a secret and no token only /flush is closed.
    """

    def __init__(self, app: Any, token: Secret | None, admin_secret: Secret | None) -> None:
        self._app = app
        self._token = token
        self._admin_secret = admin_secret

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._admits(scope):
            refusal = JSONResponse({"detail": "missing or wrong bearer token"}, 401, {"WWW-Authenticate": "Bearer"})
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _admits(self, scope: Any) -> bool:
        keys = [self._token]
        if scope["path"] == "/flush":
            keys.append(self._admin_secret)
        secrets = [key for key in keys if key is not None]
        if not secrets:
            return True
        given = Headers(scope=scope).get("authorization", "").encode("utf-8", "replace")
        accepted = [text for secret in secrets for text in secret.accepted()]
        return any(hmac.compare_digest(given, f"Bearer {text}".encode()) for text in accepted)


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only; an IPv4 address may stand within an IPv6 one."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback

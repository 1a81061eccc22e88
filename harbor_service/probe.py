"""The way back, tried: whether this machine, and so its sandboxes, reach a port on the trainer's side."""

import asyncio
import ipaddress
import re
from typing import Annotated, Final, TypedDict

import httpx
from pydantic import BaseModel, ConfigDict, Field, field_validator
from starlette.requests import Request

from harbor_service.access import is_loopback

_SECONDS: Final = 2.0
_BODY_LIMIT: Final = 1024  # bytes
_HOST_NAME: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_.])?\Z")


class ProbeRequest(BaseModel):
    """The body of `POST /probe`: `http://host:port/<nonce>` is fetched and nothing else can be."""

    model_config = ConfigDict(strict=True)

    host: str
    port: Annotated[int, Field(ge=1024, le=65535)]  # below are the machine's own services
    nonce: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]

    @field_validator("host")
    @classmethod
    def _host_is_a_name_or_an_address(cls, host: str) -> str:
        if not _HOST_NAME.match(host) and not _is_ipv6(host):
            raise ValueError("host must be a host name or an address, without port or path")
        return host


class ProbeResult(TypedDict):
    """`reached`: HTTP 200 came back, with `body` (at most 1 KiB); `error` says why not."""

    reached: bool
    body: str
    error: str


async def probe(request: ProbeRequest) -> ProbeResult:
    """Fetches once, without redirects and proxies, within two seconds."""
    host = f"[{request.host}]" if _is_ipv6(request.host) else request.host
    try:
        async with asyncio.timeout(_SECONDS):
            return await _fetch(f"http://{host}:{request.port}/{request.nonce}")
    except TimeoutError:
        return {"reached": False, "body": "", "error": f"no answer within {_SECONDS:g} s"}
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
        return {"reached": False, "body": "", "error": f"{type(error).__name__}: {error}"}


def is_local_caller(connection: Request) -> bool:
    """Whether the caller is on this machine: on loopback, or from the very address that it called."""
    if connection.client is None:
        return False
    caller = connection.client.host
    server: object = (connection.scope.get("server") or (None,))[0]
    return caller == server or is_loopback(caller)


async def _fetch(url: str) -> ProbeResult:
    async with (
        httpx.AsyncClient(timeout=_SECONDS, trust_env=False, follow_redirects=False) as client,
        client.stream("GET", url) as reply,
    ):
        if reply.status_code != 200:
            return {"reached": False, "body": "", "error": f"HTTP {reply.status_code}"}
        body = b""
        async for part in reply.aiter_raw(_BODY_LIMIT):
            body += part
            if len(body) >= _BODY_LIMIT:
                break
        return {"reached": True, "body": body[:_BODY_LIMIT].decode("utf-8", "replace"), "error": ""}


def _is_ipv6(host: str) -> bool:
    try:
        return ipaddress.IPv6Address(host).scope_id is None
    except ValueError:
        return False

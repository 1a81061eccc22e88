"""One HTTP call with an end: httpx limits each read, so a server that answers byte by byte would never end one."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from concurrent.futures import wait
from dataclasses import dataclass

import httpx

from launcher.daemon_call import in_daemon

MIB = 2**20


@dataclass(frozen=True)
class Reply:
    status: int
    body: bytes


def call(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: object = None,
    seconds: float,
    most_bytes: int = MIB,
) -> Reply:
    """`body` is sent as JSON; nothing is taken from the environment, no proxy either.

    Raises httpx.HTTPError: its ReadTimeout after `seconds` in all, its DecodingError for a body above `most_bytes`.
    """
    until = time.monotonic() + seconds
    content = None if body is None else json.dumps(body).encode()
    sent = {"Accept-Encoding": "identity", **(headers or {})}
    if content is not None:
        sent["Content-Type"] = "application/json"

    def ask() -> Reply:
        try:
            return exchange()
        except (httpx.InvalidURL, UnicodeError) as error:  # a host that no resolver takes
            raise httpx.UnsupportedProtocol(str(error)) from None

    def exchange() -> Reply:
        received = bytearray()
        with (
            httpx.Client(timeout=seconds, trust_env=False) as client,
            client.stream(method, url, headers=sent, content=content) as response,
        ):
            for piece in response.iter_raw():
                received += piece
                if len(received) > most_bytes:
                    raise httpx.DecodingError(f"the answer is larger than {most_bytes / MIB:g} MiB")
                if time.monotonic() > until:
                    raise httpx.ReadTimeout(_no_end(seconds))
        return Reply(response.status_code, bytes(received))

    answer = in_daemon(ask)
    wait([answer], seconds)
    if not answer.done():
        raise httpx.ReadTimeout(_no_end(seconds))
    return answer.result()


def _no_end(seconds: float) -> str:
    return f"no whole answer within {seconds:.1f} s"

"""Ray's job server over HTTP: its client with time limits, without surprises from the environment, with two errors."""

from __future__ import annotations

import functools
import ipaddress
import os
import socket
import time
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NoReturn, cast
from urllib.parse import urlsplit

from launcher.errors import PreflightError

if TYPE_CHECKING:
    import aiohttp
    import requests
    from ray.job_submission import JobSubmissionClient

_CONNECT_SECONDS = 5.0
_READ_SECONDS = 30.0  # a submission waits up to 10 s for the agent of the head node
_SILENCE_SECONDS = 1.0
# What an HTTP/2 client says first, and how the header of the server's first frame, its settings, begins its 4th byte.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_FRAME_HEADER, _SETTINGS = 9, 4
# Ray's client lets these override the address that it is given.
_OVERRIDES = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS")


class RayUnreachable(Exception):
    """No answer from the job server."""


class RayRefused(Exception):
    """The job server answered with an error; `status` is its HTTP status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"HTTP {status}: {last_line(text)}")
        self.status = status

    @property
    def may_pass(self) -> bool:
        """A server that starts or goes down answers 5xx for a while."""
        return self.status >= HTTPStatus.INTERNAL_SERVER_ERROR


@dataclass(frozen=True)
class JobState:
    """`status` as Ray names it: PENDING, RUNNING, STOPPED, SUCCEEDED, FAILED; `message` is Ray's, often many lines."""

    status: str
    message: str

    @property
    def ended(self) -> bool:
        return self.status in ("STOPPED", "SUCCEEDED", "FAILED")


class Connection:
    """One cluster's job server. Every call raises RayUnreachable or RayRefused."""

    def __init__(self, client: JobSubmissionClient, headers: Mapping[str, str]) -> None:
        self._client = client
        self._headers = headers
        self.address = client.get_address()

    def submit(
        self, submission_id: str, entrypoint: str, environment: Mapping[str, str], metadata: Mapping[str, str]
    ) -> None:
        with _two_errors():
            self._client.submit_job(
                entrypoint=entrypoint,
                submission_id=submission_id,
                runtime_env={"env_vars": dict(environment)},
                metadata=dict(metadata),
            )

    def state(self, submission_id: str) -> JobState:
        with _two_errors():
            details = self._client.get_job_info(submission_id)
        return JobState(str(details.status.value), details.message or "")

    def stop(self, submission_id: str) -> bool:
        """Asks for the end and does not wait for it; False where the job had ended already."""
        with _two_errors():
            return bool(self._client.stop_job(submission_id))

    def log(self, submission_id: str) -> str:
        """The whole log, in memory."""
        with _two_errors():
            return str(self._client.get_job_logs(submission_id))

    async def tail(self, submission_id: str) -> AsyncGenerator[str]:
        """The log from its first character on, in pieces as they come; an empty piece after a second of silence.

        Ends when the server has closed the stream in good order; raises RayUnreachable when it broke.
        """
        import aiohttp

        url = f"{self.address}/api/jobs/{submission_id}/logs/tail"
        try:
            async with (
                aiohttp.ClientSession(headers=dict(self._headers), trust_env=not _is_loopback(self.address)) as session,
                session.ws_connect(url, max_msg_size=0) as stream,
            ):
                _keep_alive(stream)
                while True:
                    try:
                        message = await stream.receive(timeout=_SILENCE_SECONDS)
                    except TimeoutError:
                        yield ""
                        continue
                    if message.type is not aiohttp.WSMsgType.TEXT:
                        break
                    yield str(message.data)
                if stream.close_code != aiohttp.WSCloseCode.OK:
                    raise RayUnreachable(f"the log stream broke (code {stream.close_code})")
        except (aiohttp.ClientError, OSError) as error:
            raise RayUnreachable(str(error) or type(error).__name__) from None


def connect(address: str) -> Connection:
    """`address` in any form that `existing_cluster` lets through. Raises PreflightError: address and way out."""
    from ray.exceptions import RayError

    way_out = "start the cluster, or correct --ray-address (http://HOST:8265 reaches it from anywhere)"
    target = address if "://" in address or address == "auto" else _of_port(address, way_out)
    try:
        with _environment_without(_OVERRIDES):
            return _open(target)
    except RayError:  # Ray's client has one use for it
        raise PreflightError(
            f"the Ray at {address} wants a token, or another one; set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN_PATH "
            "where its token is not in ~/.ray/auth_token"
        ) from None
    except (OSError, RuntimeError) as error:
        raise PreflightError(f"no Ray job server at {address} ({last_line(str(error))}); {way_out}") from None
    except (KeyError, TypeError, ValueError):
        raise PreflightError(f"what answers at {address} is not a Ray job server; {way_out}") from None


def _of_port(address: str, way_out: str) -> str:
    """The port may be the dashboard's or the head's own; Ray's client would wait 40 s for the wrong one."""
    import httpx

    from launcher.checks.bounded_http import call

    if _speaks_http2(address):
        return address  # gRPC, as the head's own port speaks
    try:
        reply = call("GET", f"http://{address}/api/version", seconds=_CONNECT_SECONDS)
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise PreflightError(f"nothing answers at {address} ({error}); {way_out}") from None
    except httpx.HTTPError as error:
        raise PreflightError(f"what answers at {address} is not Ray ({error}); {way_out}") from None
    wants_token = reply.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
    if b"ray_version" not in reply.body and not wants_token:
        raise PreflightError(f"what answers at {address} is not a Ray job server; {way_out}")
    return f"http://{address}"


def _speaks_http2(address: str) -> bool:
    parts = urlsplit(f"//{address}")
    received, until = b"", time.monotonic() + _CONNECT_SECONDS
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 0), _CONNECT_SECONDS) as connection:
            connection.sendall(_PREFACE)
            while len(received) < _FRAME_HEADER and (left := until - time.monotonic()) > 0:
                connection.settimeout(left)
                piece = connection.recv(_FRAME_HEADER - len(received))
                if not piece:
                    break
                received += piece
    except (OSError, UnicodeError):
        return False
    return len(received) == _FRAME_HEADER and received[3] == _SETTINGS


def _open(address: str) -> Connection:
    client, headers = _client_class()(address), dict[str, str]()
    headers.update(getattr(client, "_headers", {}))
    return Connection(client, headers)


@functools.cache
def _client_class() -> type[JobSubmissionClient]:
    from ray.job_submission import JobSubmissionClient

    class Client(JobSubmissionClient):
        def _do_request(self, method: str, endpoint: str, **options: Any) -> requests.Response:
            if _is_loopback(self._address):
                options["proxies"] = dict.fromkeys(("http", "https", "all"))
            untyped = cast(Any, super())
            return untyped._do_request(method, endpoint, timeout=(_CONNECT_SECONDS, _READ_SECONDS), **options)

        def _raise_error(self, r: requests.Response) -> NoReturn:
            raise RayRefused(r.status_code, r.text)

    return Client


@contextmanager
def _two_errors() -> Generator[None]:
    from ray.exceptions import RayError

    try:
        yield
    except RayError as error:  # Ray's client has one use for it: a cluster that wants a token
        raise RayRefused(HTTPStatus.UNAUTHORIZED, str(error)) from None
    except OSError as error:  # requests' exceptions are of this kind too
        raise RayUnreachable(last_line(str(error))) from None


@contextmanager
def _environment_without(names: tuple[str, ...]) -> Generator[None]:
    kept = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _keep_alive(stream: aiohttp.ClientWebSocketResponse) -> None:
    """A peer that vanished without a word is noticed after about 30 s; Ray's end answers no WebSocket pings."""
    raw: Any = stream.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, seconds_or_count in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            raw.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), seconds_or_count)


def last_line(text: str) -> str:
    """Of a message or a traceback, the line that says what happened; at most 300 characters."""
    lines = [line.strip() for line in text.splitlines() if any(map(str.isalnum, line))]
    return lines[-1][:300] if lines else "no message"

"""The way back: whether the agent server, and so the agents beside it, reach the session servers' ports."""

from __future__ import annotations

import errno
import secrets
import socket
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer

import httpx

from launcher.checks.agent_server import TIMEOUT, cause
from launcher.checks.bounded_http import Reply, call
from launcher.checks.json_object import json_object
from launcher.preflight import Check, Finding, failure, ok, run_checks, warning

NAME = "way back"
_LONGEST_REASON = 200  # characters
_POLL = 0.02  # seconds until a listener notices that it is to end
_TRY_BY_HAND = "try it by hand: connect from the agent server's machine to the session servers once they run"


def check_way_back(
    bind_host: str, host: str, ports: tuple[int, int], agent_server_url: str, headers: Mapping[str, str]
) -> list[Finding]:
    """Listens on the first and the last of `ports` at `bind_host` and has the agent server fetch `host`:port.

    `headers` carry the agent server's token. One finding for each port that is not reached, one where both are.
    """
    tried = sorted(set(ports))
    findings = run_checks(
        [Check(NAME, lambda port=port: _check_port(bind_host, host, port, agent_server_url, headers)) for port in tried]
    )
    wrong = [finding for finding in findings if finding.way_out]
    if wrong:
        return list(dict.fromkeys(wrong))
    return [ok(NAME, f"{agent_server_url} reaches {host}:{' and '.join(map(str, tried))}")]


def _check_port(bind_host: str, host: str, port: int, url: str, headers: Mapping[str, str]) -> Finding:
    nonce = secrets.token_urlsafe(24)
    address = url.rstrip("/") + "/probe"
    try:
        with _listener(bind_host, port, nonce):
            body = {"host": host, "port": port, "nonce": nonce}
            reply = call("POST", address, headers=headers, body=body, seconds=TIMEOUT)
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        return failure(
            NAME,
            f"not tried: {url} cannot be reached from here ({cause(error)})",
            "start the agent server, or give it an address that every node reaches with --agent-server-url",
        )
    except httpx.HTTPError as error:
        return warning(NAME, f"not tried: {address} does not answer ({cause(error)})", _TRY_BY_HAND)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return warning(NAME, f"not tried on port {port}, which is taken", "free it first (see ports)")
        return failure(
            NAME, f"cannot listen on {bind_host}:{port} ({error.strerror})", "name an address of this machine with "
            "--miles-host-ip, 0.0.0.0 for all",
        )  # fmt: skip
    return _judge(reply, address, host, port, nonce)


def _judge(reply: Reply, address: str, host: str, port: int, nonce: str) -> Finding:
    if reply.status in (404, 405):
        return warning(NAME, f"not tried: {address} does not exist ({reply.status})", _TRY_BY_HAND)
    if reply.status in (401, 403):
        return warning(
            NAME,
            f"not tried: {address} refuses ({reply.status}); it probes for callers with a token only",
            "start the agent server with --token-file and set AGENT_SERVER_TOKEN_FILE here",
        )
    if reply.status == 422:
        return failure(
            NAME, f"{host} is no host name or address to the agent server", "correct --session-server-external-host"
        )
    try:
        result = json_object(reply.body)
    except ValueError:
        result = None
    if reply.status != 200 or result is None:
        return warning(NAME, f"not tried: {address} answers HTTP {reply.status} and no result", _TRY_BY_HAND)
    if not result.get("reached"):
        reason = str(result.get("error") or "no reason given")[:_LONGEST_REASON]
        return failure(
            NAME,
            f"the agent server does not reach {host}:{port} ({reason})",
            "open these ports in the firewall, or name an address that it reaches with --session-server-external-host",
        )
    if result.get("body") != nonce:
        return failure(
            NAME,
            f"something else than this machine answers the agent server at {host}:{port}",
            "name the address of the machine with the session servers with --session-server-external-host",
        )
    return ok(NAME, f"{host}:{port} is reached")


@contextmanager
def _listener(bind_host: str, port: int, nonce: str) -> Generator[None]:
    """Answers the nonce to whoever asks for exactly it, until the caller is done. Raises OSError."""

    class Handler(BaseHTTPRequestHandler):
        timeout = TIMEOUT

        def do_GET(self) -> None:
            asked = self.path == f"/{nonce}"
            body = nonce.encode() if asked else b""
            self.send_response(200 if asked else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...

    kind = _ListenerV6 if ":" in bind_host else _Listener
    with kind((bind_host, port), Handler) as listener:
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": _POLL}, daemon=True)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown()
            thread.join()


class _Listener(ThreadingTCPServer):
    """Not http.server's own, which asks the resolver for this machine's name before it listens."""

    allow_reuse_address = True
    daemon_threads = True


class _ListenerV6(_Listener):
    address_family = socket.AF_INET6

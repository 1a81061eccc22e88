"""The agent function: one trajectory is one `POST /run` at the agent server.

Miles and the local engine call `run` for every trajectory and Miles calls `abort` when a rollout is cut short.
Whatever happens, `run` answers a dict; see `trajectory/exit_status.py` for what each ending is worth.

Environment, read at every call:
  AGENT_SERVER_URL              root of the agent server (else SWE_AGENT_URL, else http://localhost:11000)
  AGENT_MODEL_NAME              name of the served model (else SWE_AGENT_MODEL_NAME, else "model")
  AGENT_SERVER_TOKEN_FILE       file with the bearer token of the agent server
  AGENT_SERVER_WAIT             seconds to wait, before a trial starts, for a server that cannot be reached, has a
                                full queue (429) or is being restarted (600)
  AGENT_TRIAL_TIMEOUT           seconds after which a started trial is given up (7200)
  AGENT_SERVER_MAX_CONNECTIONS  most trials at a time from this process (no cap)
  SANDBOX_AUTO_STOP_MINUTES     minutes after which a provider stops an idle sandbox (the server's own)
  SANDBOX_AUTO_DELETE_MINUTES   minutes after which a provider deletes a stopped one (the server's own)
  MILES_ROUTER_EXTERNAL_HOST    host that the agent reaches the session server by (older Miles; none)
  HARBOR_ADMIN_SECRET[_FILE]    bearer token of /flush where AGENT_SERVER_TOKEN_FILE is not set
"""

import asyncio
import contextlib
import json
import logging
import math
import os
import random
import socket
import time
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit, urlunsplit
from weakref import WeakKeyDictionary

import httpx

from disk.open_files import allow_open_files
from disk.token_file import read_token
from trajectory.outcome import Outcome, discarded
from trajectory.report import report
from trajectory.sample import OUTCOME_KEYS
from trajectory.session_instances import instance_ids

logger = logging.getLogger(__name__)

DEFAULT_SERVER = "http://localhost:11000"
DEFAULT_WAIT = 600.0
DEFAULT_TRIAL_TIMEOUT = 7200.0
CONNECT_TIMEOUT = 10.0
FLUSH_TIMEOUT = 10.0
FLUSHES_AT_A_TIME = 32
FIRST_RETRY = 0.25
LONGEST_RETRY = 10.0
WAITING_NOTICE_EVERY = 60.0

_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = WeakKeyDictionary()
_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[int, asyncio.Semaphore]] = WeakKeyDictionary()
_warned: set[str] = set()
_last_waiting_notice = -math.inf


async def run(
    base_url: str,
    prompt: Any,
    request_kwargs: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """Run one trial and answer `{"reward", "exit_status", "discard", "eval_report", "agent_metrics"}`.

    `base_url` is the root of the recorded session, `request_kwargs` the sampling parameters, `metadata` the
    prompt record's (with what Miles adds: `max_seq_len`, `session_server_id`, `session_server_instance_id`). The
    prompt itself stays here: the agent gets the task's own instruction.

    Never raises but `asyncio.CancelledError`, which closes the connection and by that ends the trial. A started
    trial is never retried: its session would be replayed.
    """
    try:
        outcome = await _run(base_url, request_kwargs or {}, metadata or {})
    except asyncio.CancelledError:
        report(discarded("Aborted", reason="the trajectory was cancelled"))
        raise
    report(outcome)
    return outcome.as_dict()


async def abort(args: Any) -> None:
    """Flush the trials of every session server instance of this run; Miles calls it to cut over-sampling short.

    Silent when there is nothing to flush; failures are one warning, and one failure does not stop the others.
    """
    instances = instance_ids(args)
    if not instances or _server_setting() is None:
        return
    try:
        secret = _token() or _secret_file("HARBOR_ADMIN_SECRET_FILE") or os.environ.get("HARBOR_ADMIN_SECRET")
        headers, url = _headers(secret), f"{_usable(_server_url())}/flush"
    except (OSError, ValueError) as error:
        logger.warning("no trial was flushed: %s", _cause(error))
        return
    client, gate = _client(), asyncio.Semaphore(FLUSHES_AT_A_TIME)

    async def flush(instance_id: str) -> str | None:
        async with gate:
            try:
                async with asyncio.timeout(FLUSH_TIMEOUT):
                    body = {"session_server_instance_id": instance_id}
                    response = await client.post(url, json=body, headers=headers)
            except TimeoutError:
                return f"{instance_id}: no answer within {FLUSH_TIMEOUT:g} s"
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                return f"{instance_id}: {_cause(error)}"
        return None if response.is_success else f"{instance_id}: HTTP {response.status_code}"

    failures = [failure for failure in await asyncio.gather(*map(flush, instances)) if failure]
    if failures:
        logger.warning(
            "%d of %d flushes at %s failed: %s", len(failures), len(instances), _shown(url), "; ".join(failures)
        )


async def _run(base_url: str, sampling_params: Mapping[str, Any], metadata: Mapping[str, Any]) -> Outcome:
    try:
        content = json.dumps(_request(base_url, sampling_params, metadata), allow_nan=False).encode()
        headers = _headers(_token())
    except (TypeError, ValueError, OverflowError, RecursionError, AttributeError, OSError) as error:
        return _lost("RequestRejected", f"the request cannot be built: {_cause(error)}", metadata)
    try:
        url = f"{_usable(_server_url())}/run"
    except ValueError as error:
        return _lost("ServerUnreachable", str(error), metadata)
    async with _slot():
        return await _post(url, content, headers, metadata)


async def _post(url: str, content: bytes, headers: dict[str, str], metadata: Mapping[str, Any]) -> Outcome:
    timeout = _seconds("AGENT_TRIAL_TIMEOUT", DEFAULT_TRIAL_TIMEOUT)
    wait = _seconds("AGENT_SERVER_WAIT", DEFAULT_WAIT, least=0.0)
    deadline = math.inf
    pause = FIRST_RETRY
    while True:
        least = 0.0
        try:
            async with asyncio.timeout(timeout):
                response = await _client().post(url, content=content, headers=headers)
            outcome = _outcome_of(response, metadata)
            if not _never_started(response):
                return outcome
            cause, least = f"HTTP {response.status_code}", _retry_after(response)
        except TimeoutError:
            return _lost("ServerTimeout", f"no answer within AGENT_TRIAL_TIMEOUT, {timeout:g} s", metadata)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            cause = _cause(error)
            outcome = discarded("ServerUnreachable", reason=f"{_shown(url)}: {cause}")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return _lost("ServerUnreachable", f"{_shown(url)}: {_cause(error)}", metadata)
        # Only what says that no trial can have started is tried again: a connection that never stood, a full queue.
        now = time.monotonic()
        deadline = min(deadline, now + wait)
        left = deadline - now
        if left <= 0:
            return _lost(outcome.exit_status, str(outcome.eval_report["reason"]), metadata)
        _notice_waiting(url, cause, left)
        # Spread out, so that all trajectories of a step do not knock at the same moment.
        await asyncio.sleep(min(left, max(pause, least) * random.uniform(0.5, 1.5)))
        pause = min(pause * 2, LONGEST_RETRY)


def _never_started(response: httpx.Response) -> bool:
    """Whether the server says that this call started no trial: its queue is full, or it is being restarted.

    A 503 of a gateway does not say so: a trial may be running behind it.
    """
    if response.status_code == 429:
        return True
    if response.status_code != 503:
        return False
    try:
        reply: object = json.loads(response.content)
    except (ValueError, RecursionError):
        return False
    return isinstance(reply, dict) and cast(dict[str, object], reply).get("started") is False


def _retry_after(response: httpx.Response) -> float:
    """Seconds the server asks to wait, at most LONGEST_RETRY; 0 where it does not say."""
    raw = response.headers.get("Retry-After", "")
    return min(float(raw), LONGEST_RETRY) if raw.isascii() and raw.isdigit() else 0.0


def _outcome_of(response: httpx.Response, metadata: Mapping[str, Any]) -> Outcome:
    if _never_started(response):
        status = "RequestRejected" if response.status_code == 429 else "ServerUnreachable"
        return discarded(status, reason=_refusal(response))
    if response.status_code in (502, 503, 504):
        return _lost("ServerUnreachable", _refusal(response), metadata)
    if not response.is_success:
        return _lost("RequestRejected", _refusal(response), metadata)
    try:
        payload: object = json.loads(response.content)
    except (ValueError, RecursionError) as error:
        return _lost("InvalidReply", f"reply is not JSON ({error}): {response.text[:80]!r}", metadata)
    outcome = Outcome.from_reply(payload)
    if outcome.exit_status == "InvalidReply":
        logger.warning("trial of %s: InvalidReply: %s", metadata.get("instance_id"), outcome.eval_report.get("reason"))
    return outcome


def _refusal(response: httpx.Response) -> str:
    """Its status and the beginning of its text on one line, whatever page a foreign service answers with."""
    return f"HTTP {response.status_code}: {' '.join(response.text.split())[:200]}"


def _lost(status: str, reason: str, metadata: Mapping[str, Any]) -> Outcome:
    logger.warning("trial of %s: %s: %s", metadata.get("instance_id"), status, reason)
    return discarded(status, reason=reason)


def _request(base_url: str, sampling_params: Mapping[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The body of /run; raises ValueError when `base_url` or `max_seq_len` cannot be used."""
    session_url = _agent_view(base_url)
    # What an earlier attempt at this prompt left in its metadata is not part of the record.
    request = {key: value for key, value in metadata.items() if key not in OUTCOME_KEYS}
    request |= {"base_url": session_url, "model": _model(), "sampling_params": dict(sampling_params)}
    if metadata.get("max_seq_len") is not None:
        request["max_seq_len"] = int(metadata["max_seq_len"])
    for variable in ("SANDBOX_AUTO_STOP_MINUTES", "SANDBOX_AUTO_DELETE_MINUTES"):
        minutes = _positive(variable, "the server's own lifetime of sandboxes holds")
        if minutes is not None:
            request[variable.lower()] = minutes
    if metadata.get("session_server_id") is not None:
        # Miles names the address inside its cluster; the agent server needs the one the agent calls.
        request["session_server_id"] = urlsplit(session_url).netloc
    return request


def _agent_view(base_url: str) -> str:
    """`base_url` as the agent calls it: ends in /v1, and with the external host of an older Miles."""
    parts = urlsplit(base_url.rstrip("/"))
    if not parts.scheme or not parts.hostname:
        raise ValueError(f"base_url {base_url!r} is not a URL")
    netloc, host = parts.netloc, os.environ.get("MILES_ROUTER_EXTERNAL_HOST", "").strip()
    if host:
        host = f"[{host}]" if ":" in host and not host.startswith("[") else host
        netloc = f"{host}:{parts.port}" if parts.port else host
    path = parts.path if parts.path.endswith("/v1") else f"{parts.path}/v1"
    return urlunsplit((parts.scheme, netloc, path, "", ""))


def _model() -> str:
    name = os.environ.get("AGENT_MODEL_NAME") or os.environ.get("SWE_AGENT_MODEL_NAME") or "model"
    return name if name.startswith("openai/") else f"openai/{name}"


def _server_setting() -> str | None:
    return os.environ.get("AGENT_SERVER_URL") or os.environ.get("SWE_AGENT_URL") or None


def _server_url() -> str:
    return (_server_setting() or DEFAULT_SERVER).rstrip("/")


def _usable(url: str) -> str:
    """`url` when something can be asked there, else ValueError: below, each flaw would have an error of its own."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ValueError(f"the agent server's URL {_shown(url)!r} must be http(s)://host[:port]")
    return url


def _headers(token: str | None) -> dict[str, str]:
    headers = {"Content-Type": "application/json"}
    return headers | {"Authorization": f"Bearer {token}"} if token else headers


def _token() -> str | None:
    return _secret_file("AGENT_SERVER_TOKEN_FILE")


def _secret_file(name: str) -> str | None:
    """The token in the file that the variable names; raises OSError or ValueError when there is none to read."""
    path = os.environ.get(name)
    if not path:
        return None
    try:
        return read_token(Path(path))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _client() -> httpx.AsyncClient:
    """The client of the running loop; a client cannot serve two."""
    loop = asyncio.get_running_loop()
    client = _clients.get(loop)
    if client is None:
        allow_open_files()
        # A trial is silent for an hour: probes keep the path open and find a dead peer.
        keepalive = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
        for name, seconds in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 30), ("TCP_KEEPCNT", 5)):
            if hasattr(socket, name):
                keepalive.append((socket.IPPROTO_TCP, getattr(socket, name), seconds))
        # Limits sit on the transport, since httpx ignores the client's when a transport is given. No idle
        # connection is kept: reusing one that the server has just closed looks like a trial that was lost.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        transport = httpx.AsyncHTTPTransport(limits=limits, socket_options=keepalive)
        client = httpx.AsyncClient(transport=transport, timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT))
        _clients[loop] = client
    return client


@contextlib.asynccontextmanager
async def _slot() -> AsyncGenerator[None]:
    """A place among the trials of this process.

    The cap is not the transport's, where waiting would use up the trial's own time and hold back /flush.
    """
    cap = _positive("AGENT_SERVER_MAX_CONNECTIONS", "connections are not capped")
    if cap is None:
        yield
        return
    loop = asyncio.get_running_loop()
    known = _slots.get(loop)
    if known is None or known[0] != cap:
        known = _slots[loop] = (cap, asyncio.Semaphore(cap))
    async with known[1]:
        yield


def _positive(name: str, otherwise: str) -> int | None:
    """The whole number that the variable holds; None where it is not set, or is none and that has been said."""
    raw = os.environ.get(name, "").strip()
    if not raw:
        return None
    try:
        value = int(raw)
    except ValueError:
        value = 0
    if value < 1:
        _warn_once(f"{name}={raw} is not a positive whole number; {otherwise}")
        return None
    return value


def _seconds(name: str, default: float, *, least: float = 0.001) -> float:
    raw = os.environ.get(name, "").strip()
    if not raw:
        return default
    try:
        value = float(raw)
    except ValueError:
        value = math.nan
    if not (least <= value < math.inf):
        _warn_once(f"{name}={raw} is not a number of seconds; using {default:g}")
        return default
    return value


def _warn_once(message: str) -> None:
    if message not in _warned:
        _warned.add(message)
        logger.warning("%s", message)


def _notice_waiting(url: str, cause: str, left: float) -> None:
    """One line a minute for the whole process, not one per trajectory."""
    global _last_waiting_notice
    now = time.monotonic()
    if now - _last_waiting_notice >= WAITING_NOTICE_EVERY:
        _last_waiting_notice = now
        logger.warning("waiting up to %.0f s for the agent server at %s: %s", left, _shown(url), cause)


def _cause(error: Exception) -> str:
    """Name and text of `error`; of a failed connection the system's own text, which says refused or too many files."""
    text = str(_system_error(error) or error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _system_error(error: BaseException | None) -> OSError | None:
    """The error with a number that the libraries between here and the socket wrapped."""
    while error is not None:
        if isinstance(error, OSError) and error.errno is not None:
            return error
        several = cast(tuple[BaseException, ...], getattr(error, "exceptions", ()))
        error = several[0] if several else error.__cause__ or error.__context__
    return None


def _shown(url: str) -> str:
    """`url` without user and password."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(malformed)"
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

"""One chat completion of an OpenAI-compatible endpoint, with its failures sorted by whose fault they are."""

import asyncio
import json
import re
import time
from dataclasses import dataclass
from typing import Any, cast
from weakref import WeakKeyDictionary

import httpx

# Making a client loads the certificate store (30 ms of CPU): one for each event loop, not one for each trial.
_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = WeakKeyDictionary()
CONTEXT_ERROR = re.compile(
    r"context[ _-]?(length|window)|maximum context|max_seq_len|longer than the model", re.IGNORECASE
)
_CONTEXT_STATUS = (400, 413, 422)


class ModelEndpointFailed(Exception):
    """The endpoint, not the policy, is why there is no completion."""


class ContextLengthExceededError(Exception):
    """The conversation is longer than the model or the run allows (a name Harbor's error policy grades)."""


class OutputLengthExceededError(Exception):
    """The model was cut off at its response limit (a name Harbor's error policy grades)."""


@dataclass(frozen=True)
class Completion:
    """One reply of the model; token counts as the endpoint reports them, None where it does not.

    `message` is what the history must hold of it: a session compares these fields with what it sampled.
    """

    text: str
    message: dict[str, Any]  # role, content and, where there are any, reasoning_content and tool_calls
    finish_reason: str
    prompt_tokens: int | None
    completion_tokens: int | None
    seconds: float


def shared_client() -> httpx.AsyncClient:
    """The client of the running event loop: no connection cap, no read time-out (the trial's own clock rules)."""
    loop = asyncio.get_running_loop()
    client = _clients.get(loop)
    if client is None or client.is_closed:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=256)
        timeout = httpx.Timeout(None, connect=30.0)
        client = _clients[loop] = httpx.AsyncClient(limits=limits, timeout=timeout, trust_env=False)
    return client


async def close_shared_client() -> None:
    """Close the running loop's client; the next call makes a new one."""
    client = _clients.pop(asyncio.get_running_loop(), None)
    if client is not None:
        await client.aclose()


async def complete(base_url: str, body: dict[str, Any]) -> Completion:
    """POST `body` to `<base_url>/chat/completions`.

    Raises:
        ContextLengthExceededError: the endpoint says that the conversation does not fit.
        ModelEndpointFailed: refused, lost, any other status than 200, or a reply that is no completion.
    """
    started = time.monotonic()
    url = base_url.rstrip("/") + "/chat/completions"
    try:
        # ASCII escapes keep what a model wrote exactly, lone surrogates included, which UTF-8 would refuse.
        content = json.dumps(body).encode("ascii")
        response = await shared_client().post(url, content=content, headers={"Content-Type": "application/json"})
    except httpx.HTTPError as error:
        raise ModelEndpointFailed(f"{url}: {type(error).__name__}: {error}") from error
    text = response.text
    if response.status_code in _CONTEXT_STATUS and CONTEXT_ERROR.search(text):
        raise ContextLengthExceededError(f"HTTP {response.status_code}: {text[:300]}")
    if response.status_code != 200:
        raise ModelEndpointFailed(f"{url}: HTTP {response.status_code}: {text[:300]}")
    return _read_completion(url, text, time.monotonic() - started)


def _read_completion(url: str, text: str, seconds: float) -> Completion:
    try:
        reply = json.loads(text)
        choice = cast("dict[str, Any]", reply["choices"][0])
        answer = cast("dict[str, Any]", choice["message"])
        content = answer.get("content") or ""
        usage = cast("dict[str, Any]", reply.get("usage") or {})
        tokens = (_count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens")))
        finish_reason = str(choice.get("finish_reason") or "stop")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise ModelEndpointFailed(f"{url}: the reply is no chat completion ({error!r}): {text[:200]}") from error
    if not isinstance(content, str):
        raise ModelEndpointFailed(f"{url}: message content is not text but {type(content).__name__}")
    if finish_reason == "abort":
        raise ModelEndpointFailed(f"{url}: the endpoint aborted the completion")
    message = {"role": "assistant", "content": content}
    message |= {name: answer[name] for name in ("reasoning_content", "tool_calls") if answer.get(name)}
    return Completion(content, message, finish_reason, tokens[0], tokens[1], seconds)


def _count(tokens: object) -> int | None:
    return tokens if type(tokens) is int and tokens > 0 else None

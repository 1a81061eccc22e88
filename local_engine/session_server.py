"""OpenAI-compatible HTTP front of the sessions.

POST   /sessions                                                   -> {"session_id"}
POST   /sessions/{id}/v1/chat/completions       chat request       -> chat completion
GET    /sessions/{id}                                              -> {"session_id", "messages", "samples"}
GET    /sessions/{id}/samples                                      -> {"samples"}
DELETE /sessions/{id}                                              -> 204
GET    /health
"""

import asyncio
import re
import socket
import time
from collections.abc import Coroutine
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, field_validator

from local_engine.batcher import EngineStopped
from local_engine.sampler import Generation, SamplingParams
from local_engine.session import ContextOverflow, HistoryNotExtended, Session, SessionClosed, Sessions

# Given with these values they change nothing; with any other value they are refused by name.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "stream": (False,),
    "top_p": (1, 1.0),
    "top_k": (-1, 0),
    "min_p": (0, 0.0),
    "min_tokens": (0,),
    "presence_penalty": (0, 0.0),
    "frequency_penalty": (0, 0.0),
    "repetition_penalty": (1, 1.0),
    "tools": ([],),
    "response_format": ({"type": "text"},),
    "ignore_eos": (False,),
    "stop_token_ids": ([],),
    "seed": (),
}
# They ask for details of the answer or name the caller, and never change what is sampled.
IGNORED = {
    "model", "messages", "logprobs", "top_logprobs", "return_meta_info", "user", "no_stop_trim", "skip_special_tokens",
    "spaces_between_special_tokens", "max_completion_tokens", "tool_choice", "metadata", "store", "stream_options",
    "parallel_tool_calls",
}  # fmt: skip


class ChatRequest(BaseModel):
    """The part of OpenAI's chat request that the local engine honours."""

    model_config = ConfigDict(extra="allow")

    model: str = ""
    messages: list[dict[str, Any]] = Field(min_length=1)
    temperature: float | None = Field(default=None, ge=0, le=10, allow_inf_nan=False)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    stop: str | list[str] | None = None
    stop_regex: str | list[str] | None = None

    @field_validator("messages")
    @classmethod
    def every_message_has_role_and_text(cls, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for number, message in enumerate(messages):
            if not isinstance(message.get("role"), str):
                raise ValueError(f"message {number} has no role")
            if not isinstance(message.get("content"), str):
                raise ValueError(f"message {number}: content must be text; the local engine reads text only")
            if not _encodable(message["role"]) or not _encodable(message["content"]):
                raise ValueError(f"message {number} holds half of a surrogate pair, which is no text")
        return messages

    @field_validator("stop_regex")
    @classmethod
    def every_pattern_compiles(cls, patterns: str | list[str] | None) -> str | list[str] | None:
        for pattern in _texts(patterns):
            try:
                re.compile(pattern)
            except (re.error, OverflowError, RecursionError) as error:
                raise ValueError(f"stop_regex {pattern!r:.200} is no regular expression: {error}") from None
        return patterns

    def refused(self) -> str:
        """Names and values that the engine cannot honour, empty if there are none."""
        extra = self.model_extra or {}
        return ", ".join(
            f"{name}={value!r}"
            for name, value in extra.items()
            if value is not None and name not in IGNORED and value not in NEUTRAL.get(name, ())
        )


def _texts(value: str | list[str] | None) -> tuple[str, ...]:
    return () if value is None else (value,) if isinstance(value, str) else tuple(value)


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def make_app(sessions: Sessions, *, default_temperature: float, model_name: str, instance_id: str) -> FastAPI:
    """The HTTP application; it holds no state of its own."""
    app = FastAPI(title="local session server", docs_url=None, redoc_url=None)

    def find(session_id: str) -> Session:
        try:
            return sessions.get(session_id)
        except KeyError:
            raise HTTPException(404, f"session not found: session_id={session_id}") from None

    def refuse(status: int, message: str, code: str) -> JSONResponse:
        return JSONResponse({"error": {"message": message, "type": "BadRequestError", "code": code}}, status)

    @app.exception_handler(RequestValidationError)
    async def malformed(_: Request, error: RequestValidationError) -> JSONResponse:  # pyright: ignore[reportUnusedFunction]
        # Without the caller's data: it may hold what JSON cannot (NaN, half of a surrogate pair).
        problems = [{name: item[name] for name in ("type", "loc", "msg")} for item in error.errors()]
        return JSONResponse({"detail": problems}, 422)

    @app.get("/health")
    async def health() -> dict[str, Any]:  # pyright: ignore[reportUnusedFunction]
        return {"status": "ok", "session_server_instance_id": instance_id}

    @app.post("/sessions")
    async def create() -> dict[str, str]:  # pyright: ignore[reportUnusedFunction]
        return {"session_id": sessions.create().id}

    @app.get("/sessions/{session_id}")
    async def show(session_id: str) -> dict[str, Any]:  # pyright: ignore[reportUnusedFunction]
        session = find(session_id)
        return {"session_id": session.id, "messages": session.messages, "samples": _samples(session)}

    @app.get("/sessions/{session_id}/samples")
    async def samples(session_id: str) -> dict[str, Any]:  # pyright: ignore[reportUnusedFunction]
        return {"samples": _samples(find(session_id))}

    @app.delete("/sessions/{session_id}")
    async def delete(session_id: str) -> Response:  # pyright: ignore[reportUnusedFunction]
        find(session_id)
        sessions.close(session_id)
        return Response(status_code=204)

    @app.post("/sessions/{session_id}/v1/chat/completions", response_model=None)
    async def chat(  # pyright: ignore[reportUnusedFunction]
        session_id: str, body: ChatRequest, request: Request
    ) -> JSONResponse | dict[str, Any]:
        session = find(session_id)
        if refused := body.refused():
            return refuse(400, f"not supported by the local engine: {refused}", "unsupported_parameter")
        params = SamplingParams(
            temperature=default_temperature if body.temperature is None else body.temperature,
            max_new_tokens=body.max_tokens or body.max_completion_tokens or 0,
            stop=_texts(body.stop),
            stop_regex=_texts(body.stop_regex),
        )
        try:
            text, generation = await _unless_disconnected(request, sessions.chat(session, body.messages, params))
        except _CallerGone:
            return refuse(499, "the caller closed the connection", "caller_gone")
        except SessionClosed as error:
            return refuse(404, str(error), "session_closed")
        except EngineStopped as error:
            return refuse(503, str(error), "engine_stopped")
        except HistoryNotExtended as error:
            return refuse(409, str(error), "history_not_extended")
        except ContextOverflow as error:
            return refuse(400, str(error), "context_length_exceeded")
        return _completion(session, text, generation, body.model or model_name)

    return app


class _CallerGone(Exception):
    """Nobody waits for the answer any more."""


async def _unless_disconnected[T](request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Await `work`, or cancel it when the caller has hung up: a dead agent's turn takes no part in a batch."""
    task = asyncio.create_task(work)

    async def gone() -> None:
        while not await request.is_disconnected():
            await asyncio.sleep(0.5)

    watch = asyncio.ensure_future(gone())
    try:
        await asyncio.wait([task, watch], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise _CallerGone
        return await task
    finally:
        watch.cancel()
        task.cancel()


def _samples(session: Session) -> list[dict[str, Any]]:
    """The session as one training sample; none before its first turn."""
    if not session.turns:
        return []
    sample = {
        "tokens": session.tokens,
        "response_length": session.response_length,
        "loss_mask": session.loss_mask,
        "rollout_log_probs": session.log_probs,
        "weight_versions": session.weight_versions,
        "finish_reason": session.finish_reason,
    }
    return [sample]


def _completion(session: Session, text: str, generation: Generation, model: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{session.id}-{session.turns}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text},
                "finish_reason": generation.finish_reason,
                "meta_info": {
                    "output_token_logprobs": [
                        [p, i, None] for p, i in zip(generation.log_probs, generation.ids, strict=True)
                    ],
                    "completion_tokens": len(generation.ids),
                    "weight_version": str(generation.version),
                },
            }
        ],
        "usage": {
            "prompt_tokens": len(generation.tokens),
            "completion_tokens": len(generation.ids),
            "total_tokens": len(generation.tokens) + len(generation.ids),
        },
    }


class SessionServer:
    """The application on a port of its own in the running event loop."""

    def __init__(self, app: FastAPI, bind: str = "127.0.0.1", port: int = 0, host: str = "127.0.0.1") -> None:
        """Binds at once; raises OSError. `host` is where clients reach it."""
        family = socket.AF_INET6 if ":" in bind else socket.AF_INET
        self._socket = socket.create_server((bind, port), family=family, backlog=1024)
        self.host = f"[{host}]" if ":" in host else host
        self.port: int = self._socket.getsockname()[1]
        self._server = uvicorn.Server(
            uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=2, access_log=False)
        )
        # The loop that embeds the server handles signals itself.
        self._server.capture_signals = _no_signals  # pyright: ignore[reportAttributeAccessIssue]
        self._task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    async def start(self) -> None:
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]), name="session-server")
        while not self._server.started:
            if self._task.done():
                self._task.result()
                raise RuntimeError("the session server ended while starting")
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        self._server.should_exit = True
        if self._task is not None:
            await asyncio.wait([self._task])
        self._socket.close()


class _no_signals:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

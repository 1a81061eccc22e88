"""STUB for tests: an HTTP server in the place of the agent server that can misbehave below HTTP.

A raw asyncio server, since a web framework cannot reset a connection or send half an answer.
"""

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Request:
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class Answer:
    """What to send back, after `delay` seconds or once `when` is set; `reset` cuts the connection instead."""

    body: str = '{"reward": 1.0, "exit_status": "Submitted"}'
    status: int = 200
    delay: float = 0.0
    when: asyncio.Event | None = None
    reset: bool = False


@dataclass
class AgentServerStub:
    """STUB. Answers every request with `answer`, records requests and callers that hung up."""

    answer: Callable[[Request], Answer] = lambda request: Answer()
    requests: list[Request] = field(default_factory=list[Request])
    hung_up: int = 0
    open_now: int = 0
    most_open: int = 0
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextlib.asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncGenerator["AgentServerStub"]:
        """Listens on 127.0.0.1 while the block runs."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", port, backlog=2048)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open_now += 1
        self.most_open = max(self.most_open, self.open_now)
        try:
            await self._answer(reader, writer)
        finally:
            self.open_now -= 1
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, value in (line.split(":", 1) for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        method, path, _ = first.split(" ")
        request = Request(method, path, headers, json.loads(body) if body else None)
        self.requests.append(request)
        answer = self.answer(request)
        if await self._caller_left(reader, answer):
            self.hung_up += 1
            return
        if answer.reset:
            # Linger 0 makes the close a reset rather than an orderly end.
            raw: socket.socket = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return
        payload = answer.body.encode()
        writer.write(f"HTTP/1.1 {answer.status} x\r\ncontent-length: {len(payload)}\r\n\r\n".encode() + payload)
        await writer.drain()

    @staticmethod
    async def _caller_left(reader: asyncio.StreamReader, answer: Answer) -> bool:
        if not answer.delay and answer.when is None:
            return False
        due = asyncio.ensure_future(asyncio.sleep(answer.delay) if answer.when is None else answer.when.wait())
        leaving = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({due, leaving}, return_when=asyncio.FIRST_COMPLETED)
            return not due.done() and (leaving.exception() is not None or leaving.result() == b"")
        finally:
            due.cancel()
            leaving.cancel()


async def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    """Wait until `condition` holds; fails the test after `seconds`."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)

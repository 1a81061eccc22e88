"""Stand-in for an agent server, ours or another's: fixed answers over a real socket, and what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Answers:
    """`routes`: status and body by path; with a token a call without it gets 401."""

    routes: Mapping[str, tuple[int, str]]
    token: str | None = None
    asked: list[tuple[str, Any]] = field(default_factory=list)
    url: str = ""


@contextmanager
def http_answers(
    routes: Mapping[str, tuple[int, str]], token: str | None = None, host: str = "127.0.0.1", port: int = 0
) -> Iterator[Answers]:
    answers = Answers(routes, token)

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answers.asked.append((self.path, json.loads(body) if body else None))
            admitted = token is None or self.headers.get("Authorization") == f"Bearer {token}"
            status, text = routes.get(self.path) or routes.get("*") or (404, "")
            self.send_response(status if admitted else 401)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_POST = answer

        def log_message(self, format: str, *args: object) -> None: ...

    listener = ThreadingHTTPServer((host, port), Handler)
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    answers.url = f"http://{host}:{listener.server_port}"
    try:
        yield answers
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()

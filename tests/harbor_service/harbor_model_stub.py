"""STUB for tests: an OpenAI-compatible endpoint that answers what the test says. No model is behind it."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from miles_tito_tokenizers.message_utils import assert_messages_append_only_with_allowed_role

Answer = Callable[[dict[str, Any]], "Reply"]
APPENDED_ROLES = ["tool", "user", "system"]  # those of the local engine's sessions


class Reply:
    """What the stub answers: text with a finish reason, or a raw status and body; `delay` in seconds.

    `message` holds further fields of the assistant message, `usage` False leaves the token counts out.
    """

    def __init__(
        self,
        text: str = "",
        *,
        finish_reason: str = "stop",
        status: int = 200,
        body: str | None = None,
        delay: float = 0,
        message: dict[str, Any] | None = None,
        usage: bool = True,
    ) -> None:
        self.status = status
        self.delay = delay
        self.message = {"role": "assistant", "content": text, **(message or {})}
        self.body = body if body is not None else self._completion(finish_reason, usage)

    def _completion(self, finish_reason: str, usage: bool) -> str:
        choice = {"index": 0, "message": self.message, "finish_reason": finish_reason}
        completion: dict[str, Any] = {"object": "chat.completion", "choices": [choice]}
        if usage:
            completion["usage"] = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        return json.dumps(completion)


def bash(command: str) -> Reply:
    return Reply(f"```bash\n{command}\n```")


class ModelStub:
    """Serves in a thread. `answer` maps a request body to a Reply and may be replaced at any time."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.requests: list[dict[str, Any]] = []
        self._end = threading.Event()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                stub.requests.append({"path": self.path, **body})
                reply = stub.reply_to(body)
                stub._end.wait(reply.delay)
                payload = reply.body.encode()
                head = f"HTTP/1.1 {reply.status} Stub\r\nContent-Length: {len(payload)}\r\n\r\n"
                try:
                    self.wfile.write(head.encode() + payload)
                except OSError:
                    self.close_connection = True

            def log_message(self, format: str, *args: Any) -> None:
                del format, args

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/sessions/s1/v1"

    def reply_to(self, body: dict[str, Any]) -> Reply:
        return self.answer(body)

    def close(self) -> None:
        self._end.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class SessionStub(ModelStub):
    """One session that gives its `replies` in turn and, like the real one, refuses a history that is not extended."""

    def __init__(self, *replies: Reply) -> None:
        super().__init__(lambda body: self._replies[self.turns])
        self._replies = replies
        self.history: list[dict[str, Any]] = []
        self.turns = 0
        self.refused: list[str] = []

    def reply_to(self, body: dict[str, Any]) -> Reply:
        try:
            assert_messages_append_only_with_allowed_role(self.history, body["messages"], APPENDED_ROLES)
            if len(body["messages"]) == len(self.history):
                raise ValueError("no message was appended")
        except ValueError as error:
            self.refused.append(str(error))
            return Reply(status=409, body=json.dumps({"error": {"message": str(error)}}))
        reply = super().reply_to(body)
        if reply.status == 200:
            self.history = [*body["messages"], reply.message]
            self.turns += 1
        return reply

"""STUB for tests: an OpenAI-compatible endpoint that answers what the test says. No model is behind it."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[dict[str, Any]], "Reply"]


class Reply:
    """What the stub answers: text with a finish reason, or a raw status and body; `delay` in seconds."""

    def __init__(
        self,
        text: str = "",
        *,
        finish_reason: str = "stop",
        status: int = 200,
        body: str | None = None,
        delay: float = 0,
    ) -> None:
        self.status = status
        self.delay = delay
        self.body = body if body is not None else _completion(text, finish_reason)


def bash(command: str) -> Reply:
    return Reply(f"```bash\n{command}\n```")


def _completion(text: str, finish_reason: str) -> str:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    return json.dumps({"object": "chat.completion", "choices": [choice], "usage": usage})


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
                reply = stub.answer(body)
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

    def close(self) -> None:
        self._end.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

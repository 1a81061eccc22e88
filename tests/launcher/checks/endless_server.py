"""Stand-in for a server that never ends an answer: it sends the same piece for ever."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"


@contextmanager
def endless_server(first: bytes, piece: bytes, pause: float) -> Iterator[str]:
    """Its address, host:port. `pause` in seconds between two pieces; an empty piece is silence."""
    ended = threading.Event()

    def answer(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.sendall(first)
            while not ended.wait(pause):
                connection.sendall(piece)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept, daemon=True).start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            ended.set()
            server.shutdown(socket.SHUT_RDWR)

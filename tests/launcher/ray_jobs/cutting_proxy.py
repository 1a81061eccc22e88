"""A TCP proxy whose connections a test cuts in the middle."""

from __future__ import annotations

import socket
import threading
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit


class CuttingProxy:
    """Forwards to the host of `url`; `without_websockets` cuts each connection that asks for one."""

    def __init__(self, url: str, *, without_websockets: bool = False) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "", parts.port or 80)
        self._without_websockets = without_websockets
        self._server = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._closed = False
        self.accepted = 0
        self.address = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def cut(self) -> None:
        """All connections there are; new ones are forwarded again."""
        for each in self._open:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            each.close()
        self._open.clear()

    def close(self) -> None:
        self._closed = True
        self._server.close()
        self.cut()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._server.accept()
                if self._closed:
                    client.close()
                    return
                upstream = socket.create_connection(self._target)
            except OSError:
                return
            self.accepted += 1
            self._open += [client, upstream]
            for source, sink in ((client, upstream), (upstream, client)):
                threading.Thread(target=self._forward, args=(source, sink), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(4096):
                if self._without_websockets and b"upgrade: websocket" in data.lower():
                    break
                sink.sendall(data)
        except OSError:
            pass
        for each in (source, sink):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

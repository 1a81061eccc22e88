"""Stand-in for the agent server in benchmarks/agent_client.py: answers `/run` at once, or `/held` never.

Prints its port. A raw protocol in a process of its own, so that what is measured is the caller.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from disk.open_files import allow_open_files

REPLY = (
    b'{"reward": 1.0, "exit_status": "Submitted", "eval_report": {"trial": "mkdir__abcdefg"}, "agent_metrics": '
    b'{"turns": 3, "commands": 3, "model_seconds": 12.5, "command_seconds": 0.2, "trial_seconds": 14.0}}'
)
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(REPLY), REPLY)


class Caller(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._data = b""

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, complete, body = self._data.partition(b"\r\n\r\n")
        if not complete:
            return
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        if len(body) >= length:
            self._data = b""
            if not head.startswith(b"POST /held"):
                self._transport.write(ANSWER)


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Caller, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    allow_open_files()
    asyncio.run(serve())

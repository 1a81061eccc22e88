"""A TCP proxy that drops, delays, truncates and corrupts, by chance with a seed."""

import asyncio
import contextlib
import random
import socket
import struct
from collections import Counter
from collections.abc import AsyncGenerator
from enum import StrEnum

CHUNK = 65_536
REQUEST_BYTES, REPLY_BYTES = 700, 500  # about what goes each way: where in it a fault strikes


class Fate(StrEnum):
    """What becomes of one connection."""

    PASSES = "passes"
    RESET_AT_ONCE = "reset at once"
    REQUEST_CUT = "request cut in the middle"
    REQUEST_CORRUPTED = "a byte of the request is another"
    RESET_DURING_TRIAL = "reset while the trial runs"
    REPLY_CUT = "reply cut in the middle"
    REPLY_CORRUPTED = "a byte of the reply is another"
    REPLY_WITHHELD = "the reply never comes"
    SLOW = "small portions, each late"


ENDS_IN_RESET = frozenset({Fate.RESET_AT_ONCE, Fate.REQUEST_CUT, Fate.RESET_DURING_TRIAL, Fate.REPLY_CUT})


class ChaosProxy:
    """In front of 127.0.0.1:`target_port`. `fates` are weights; a fate that is not named does not happen."""

    def __init__(self, target_port: int, fates: dict[Fate, float], seed: int) -> None:
        self.target_port = target_port
        self.fates = fates
        self.met: Counter[Fate] = Counter()
        self.port = 0
        self._chance = random.Random(seed)
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncGenerator["ChaosProxy"]:
        await self.listen()
        try:
            yield self
        finally:
            self.refuse()

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]

    def refuse(self) -> None:
        """Refuse new connections, as a balancer without a live server does; those that stand go on."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        fate = self._chance.choices(list(self.fates), list(self.fates.values()))[0]
        self.met[fate] += 1
        ends = [to_client]
        try:
            if fate is Fate.RESET_AT_ONCE:
                return
            server, to_server = await asyncio.open_connection("127.0.0.1", self.target_port)
            ends.append(to_server)
            there = asyncio.create_task(self._carry(client, to_server, *self._of_request(fate), fate is Fate.SLOW))
            back = asyncio.create_task(self._carry(server, to_client, *self._of_reply(fate), fate is Fate.SLOW))
            ways: set[asyncio.Task[None]] = {there, back}
            patience = self._chance.uniform(0, 2) if fate is Fate.RESET_DURING_TRIAL else None
            if fate is Fate.REPLY_WITHHELD:
                back.cancel()
                ways = {there}
            await asyncio.wait(ways, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            for way in (there, back):
                way.cancel()
            await asyncio.gather(there, back, return_exceptions=True)
        except OSError:
            pass  # nobody at the target
        finally:
            for end in ends:
                self._end(end, hard=fate in ENDS_IN_RESET)

    def _of_request(self, fate: Fate) -> tuple[int | None, int | None]:
        """(byte after which it is cut, byte that is corrupted)"""
        at = self._chance.randrange(REQUEST_BYTES)
        return (at if fate is Fate.REQUEST_CUT else None, at if fate is Fate.REQUEST_CORRUPTED else None)

    def _of_reply(self, fate: Fate) -> tuple[int | None, int | None]:
        at = self._chance.randrange(REPLY_BYTES)
        return (at if fate is Fate.REPLY_CUT else None, at if fate is Fate.REPLY_CORRUPTED else None)

    async def _carry(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, cut: int | None, corrupt: int | None, slow: bool
    ) -> None:
        done = 0
        while data := await source.read(100 if slow else CHUNK):
            if slow:
                await asyncio.sleep(self._chance.uniform(0, 0.2))
            if corrupt is not None and done <= corrupt < done + len(data):
                at = corrupt - done
                # All bits: ASCII becomes what is no UTF-8, so that no reply turns into another valid one.
                data = data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]
            ends_here = cut is not None and done + len(data) > cut
            sink.write(data[: cut - done] if cut is not None and ends_here else data)
            await sink.drain()
            if ends_here:
                return
            done += len(data)

    @staticmethod
    def _end(end: asyncio.StreamWriter, *, hard: bool) -> None:
        if hard:
            raw: socket.socket = end.get_extra_info("socket")
            # Linger 0 makes the close a reset; what is still in our buffer is lost with it.
            with contextlib.suppress(OSError):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        end.close()

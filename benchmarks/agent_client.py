"""What a call of `swe_agent_function.run` costs, against bare httpx posting the same body.

    uv run python benchmarks/agent_client.py                 1,000 calls a round, and memory with 1,000 open; 1 minute

The three sides take turns in one process against a stand-in that answers at once, in a process of its own: `run`,
httpx with a new connection for each call (as `run` has it: a trial is too costly for a connection that the server may
just be closing), and httpx as it comes, which keeps connections. Memory is the growth of the resident set of a fresh
process for each side, from a warm client to 1,000 calls that wait for their answer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import httpx
from rich.console import Console
from rich.table import Table

import swe_agent_function
from disk.open_files import allow_open_files

PARTS = Path(__file__).resolve().parent / "parts"
BASE_URL = "http://10.0.0.1:30000/sessions/0123456789abcdef0123456789abcdef"
SAMPLING = {"temperature": 0.8, "max_tokens": 4096}
METADATA = {
    "instance_id": "mkdir-train-000017",
    "agent_name": "shell",
    "split": "train",
    "max_seq_len": 65_536,
    "session_server_id": "10.0.0.1:30000",
    "session_server_instance_id": "0123456789abcdef",
}
BODY = json.dumps(
    {**METADATA, "base_url": f"{BASE_URL}/v1", "model": "openai/model", "sampling_params": SAMPLING}
).encode()

Call = Callable[[], Awaitable[None]]


@dataclass
class Side:
    name: str
    call: Call
    open_call: Call  # one that is never answered


def sides(url: str) -> list[Side]:
    """All three for the running loop."""
    fresh = httpx.AsyncClient(timeout=None, limits=httpx.Limits(max_connections=None, max_keepalive_connections=0))
    keeping = httpx.AsyncClient(timeout=None)
    headers = {"Content-Type": "application/json"}

    async def ours(root: str = url) -> None:
        os.environ["AGENT_SERVER_URL"] = root
        outcome = await swe_agent_function.run(BASE_URL, "prompt", SAMPLING, METADATA)
        if outcome["reward"] != 1.0:
            raise SystemExit(f"a call failed: {outcome}")

    def bare(client: httpx.AsyncClient, path: str) -> Call:
        async def call() -> None:
            response = await client.post(url + path, content=BODY, headers=headers)
            if response.json()["reward"] != 1.0:
                raise SystemExit(f"a call failed: {response.text}")

        return call

    return [
        Side("run", ours, lambda: ours(f"{url}/held")),
        Side("httpx, new connections", bare(fresh, "/run"), bare(fresh, "/held")),
        Side("httpx, kept connections", bare(keeping, "/run"), bare(keeping, "/held")),
    ]


async def rates(url: str, rounds: int, calls: int, at_once: int) -> dict[str, list[tuple[float, float]]]:
    """Name of a side -> (calls a second, CPU milliseconds a call) of each round."""
    taken: dict[str, list[tuple[float, float]]] = {}
    all_sides = sides(url)
    for number in range(rounds + 1):
        for side in all_sides if number % 2 else reversed(all_sides):
            places = asyncio.Semaphore(at_once)

            async def one(call: Call = side.call, places: asyncio.Semaphore = places) -> None:
                async with places:
                    await call()

            began, cpu = time.perf_counter(), time.process_time()
            await asyncio.gather(*(one() for _ in range(calls)))
            seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
            if number:  # the first round makes the clients
                taken.setdefault(side.name, []).append((calls / seconds, 1000 * cpu / calls))
    return taken


async def open_memory(url: str, which: int, calls: int) -> None:
    """Prints the KiB that each of `calls` open calls of one side adds."""
    side = sides(url)[which]
    await asyncio.gather(*(side.call() for _ in range(20)))
    before = resident_kib()
    pending = [asyncio.ensure_future(side.open_call()) for _ in range(calls)]
    connected = 0
    while connected < calls:
        await asyncio.sleep(0.2)
        connected = established(int(url.rpartition(":")[2]))
    print((resident_kib() - before) / calls)
    for call in pending:
        call.cancel()
    await asyncio.gather(*pending, return_exceptions=True)


def resident_kib() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def established(port: int) -> int:
    """Connections of this machine to `port`."""
    remote = f":{port:04X}"
    lines = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return sum(1 for line in lines if line[2].endswith(remote) and line[3] == "01")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=1000, help="in a round, and open at once")
    parser.add_argument("--at-once", type=int, default=64, help="while calls a second are measured")
    parser.add_argument("--memory-of", nargs=2, help=argparse.SUPPRESS)  # this file's own child: side, URL
    options = parser.parse_args()
    allow_open_files()
    os.environ.pop("AGENT_SERVER_MAX_CONNECTIONS", None)
    if options.memory_of:
        asyncio.run(open_memory(options.memory_of[1], int(options.memory_of[0]), options.calls))
        return
    server = subprocess.Popen([sys.executable, str(PARTS / "instant_server.py")], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    url = f"http://127.0.0.1:{int(server.stdout.readline())}"
    load = os.getloadavg()[0]
    try:
        taken = asyncio.run(rates(url, options.rounds, options.calls, options.at_once))
        memory: list[float | None] = [own_process(url, which, options.calls) for which in (0, 1)]
    finally:
        server.terminate()
        server.wait()
    table = Table(title=f"Medians of {options.rounds} rounds; load at start {load:.1f}", title_justify="left")
    for name in ("", "calls/s", "CPU ms a call", f"KiB a call with {options.calls} open"):
        table.add_column(name, justify="right")
    # httpx as it comes opens 100 connections; the others would wait in its pool.
    for (name, values), kib in zip(taken.items(), [*memory, None], strict=True):
        per_second, cpu = (statistics.median(column) for column in zip(*values, strict=True))
        table.add_row(name, f"{per_second:.0f}", f"{cpu:.2f}", "-" if kib is None else f"{kib:.1f}")
    Console(width=120).print(table)


def own_process(url: str, which: int, calls: int) -> float:
    argv = [sys.executable, str(Path(__file__).resolve()), "--memory-of", str(which), url, "--calls", str(calls)]
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr[-2000:])
    return float(done.stdout)


if __name__ == "__main__":
    main()

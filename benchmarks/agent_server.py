"""Trials a minute and CPU of a trial through the agent server, against a plain loop of Harbor's trials.

    uv run python benchmarks/agent_server.py            the oracle and the shell agent at 1, 8 and 32 at once; 6 minutes

Both sides run the same task in the same bubblewrap sandbox with the same agent, in turn, each as a process of its own.
The server's side is POST /run: HTTP, queue, trial, verdict, reply; the caller writes to bare sockets, since it would be
on another machine (benchmarks/agent_client.py has its cost). The shell agent's model is a script that answers at once.
Left out: what a model and real commands take, which is most of a trial; what is left is all overhead. CPU is that of
the process and of everything it ran, from /proc.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from rich.console import Console
from rich.table import Table

from tests.harbor_service.harbor_model_stub import ModelStub, bash
from tests.harbor_service.harbor_server_process import AgentServerProcess, cpu_seconds, run_body, write_task

ROOT = Path(__file__).resolve().parents[1]
TASK = "mkdir"
SOLUTION = "mkdir target"


@dataclass
class Cost:
    """Of one round."""

    per_minute: float
    cpu_ms: float  # a trial


class Server:
    """The agent server with `at_once` places."""

    def __init__(self, folder: Path, tasks: Path, at_once: int) -> None:
        self._process = AgentServerProcess(folder, tasks, "--max-concurrent", str(at_once))

    def cost(self, agent: str, base_url: str, trials: int) -> Cost:
        content = json.dumps(run_body(TASK, base_url, agent_name=agent)).encode()

        async def all_of_them() -> list[dict[str, Any]]:
            return await asyncio.gather(*(post(self._process.url, content) for _ in range(trials)))

        cpu, began = self._process.cpu_seconds(), time.perf_counter()
        replies = asyncio.run(all_of_them())
        seconds = time.perf_counter() - began
        if any(reply["reward"] != 1.0 for reply in replies):
            raise SystemExit(f"a trial failed: {replies}\n{self._process.log[-2000:]}")
        return Cost(60 * trials / seconds, 1000 * (self._process.cpu_seconds() - cpu) / trials)

    def close(self) -> None:
        self._process.close()


async def post(url: str, content: bytes) -> dict[str, Any]:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    head = f"POST /run HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n"
    writer.write(head.encode() + b"Connection: close\r\n\r\n" + content)
    reply = await reader.read()
    writer.close()
    return json.loads(reply.partition(b"\r\n\r\n")[2])


class Loop:
    """The plain loop."""

    def __init__(self, folder: Path, tasks: Path) -> None:
        argv = [sys.executable, str(ROOT / "benchmarks" / "parts" / "bare_trials.py"), str(tasks / TASK), str(folder)]
        self._process = subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def cost(self, agent: str, base_url: str, trials: int, at_once: int) -> Cost:
        assert self._process.stdin is not None and self._process.stdout is not None
        order = {"agent": agent, "base_url": base_url, "trials": trials, "at_once": at_once}
        cpu = cpu_seconds(self._process.pid)
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if any(reward != {"reward": 1.0} for reward in answer["rewards"]):
            raise SystemExit(f"a trial of the plain loop failed: {answer['rewards']}")
        return Cost(60 * trials / answer["seconds"], 1000 * (cpu_seconds(self._process.pid) - cpu) / trials)

    def close(self) -> None:
        self._process.communicate()


def measure(folder: Path, agents: list[str], levels: list[int], rounds: int, trials: int) -> Table:
    tasks = folder / "tasks"
    write_task(tasks, TASK)
    model = ModelStub(lambda body: bash(SOLUTION))
    loop = Loop(folder / "loop", tasks)
    table = Table(title=f"Medians of {rounds} rounds; load at start {os.getloadavg()[0]:.1f}", title_justify="left")
    for name in ("agent", "at once", "server", "loop", "trials/min", "server", "loop", "CPU ms a trial"):
        table.add_column(name, justify="right")
    try:
        for at_once in levels:
            (folder / str(at_once)).mkdir()
            server = Server(folder / str(at_once), tasks, at_once)
            for agent in agents:
                count = max(trials, 2 * at_once)
                pairs: list[tuple[Cost, Cost]] = []
                for number in range(rounds + 1):
                    # In turn, and in alternating order, so that a busy machine slows both.
                    ours = server.cost(agent, model.base_url, count) if number % 2 else None
                    bare = loop.cost(agent, model.base_url, count, at_once)
                    ours = ours or server.cost(agent, model.base_url, count)
                    if number:  # the first round warms up
                        pairs.append((ours, bare))
                table.add_row(agent, str(at_once), *row(pairs))
            server.close()
    finally:
        loop.close()
        model.close()
    return table


def row(pairs: list[tuple[Cost, Cost]]) -> list[str]:
    """Medians of both sides, and the median of the rounds' own differences: load that comes and goes hits a pair."""
    cells: list[str] = []
    for name in ("per_minute", "cpu_ms"):
        ours = [getattr(pair[0], name) for pair in pairs]
        bare = [getattr(pair[1], name) for pair in pairs]
        ratio = statistics.median(mine / other for mine, other in zip(ours, bare, strict=True))
        cells += [f"{statistics.median(ours):.0f}", f"{statistics.median(bare):.0f}", f"{100 * (ratio - 1):+.0f}%"]
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", nargs="+", default=["oracle", "shell"], choices=["oracle", "shell"])
    parser.add_argument("--at-once", nargs="+", type=int, default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--trials", type=int, default=32, help="in a round, and at least two for each place")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table = measure(Path(folder), options.agents, options.at_once, options.rounds, options.trials)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()

"""Entry point of a Ray job: one command on each of several nodes at once.

    python3 -m launcher.ray_jobs.on_nodes --nodes 4 --gpus 8 -- torchrun --nnodes {nnodes} --node-rank {node_rank} ...

`{master_addr}`, `{node_rank}` and `{nnodes}` are replaced inside the arguments; rank 0's node is the master.
"""

from __future__ import annotations

import argparse
import ctypes
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any, cast

import ray
from ray.exceptions import RayActorError
from ray.util.placement_group import PlacementGroup, placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

_ray: Any = ray  # typed in parts only

_FREE_SECONDS = 60.0
_GRACE_SECONDS = 10.0
_END_SECONDS = _GRACE_SECONDS + 5
_PR_SET_PDEATHSIG = 1


class OneNode:
    """An actor that runs the command on its node."""

    def __init__(self) -> None:
        self._lines: queue.Queue[str | None] = queue.Queue(maxsize=10_000)
        self._process: subprocess.Popen[str] | None = None

    def address(self) -> str:
        return str(_ray.util.get_node_ip_address())

    def start(self, command: list[str]) -> str | None:
        """What keeps it from starting, if anything."""
        libc = ctypes.CDLL(None)
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
                # This actor is killed without a word when the job is.
                preexec_fn=lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0),
            )
        except OSError as error:
            return str(error)
        threading.Thread(target=self._read, args=(self._process,), daemon=True).start()
        return None

    def poll(self) -> tuple[list[str], int | None]:
        """Lines that have come, after a second at most, and with the last of them the exit code."""
        assert self._process is not None
        lines: list[str] = []
        try:
            line = self._lines.get(timeout=1.0)
            while line is not None:
                lines.append(line)
                line = self._lines.get_nowait()
        except queue.Empty:
            # A process that it left behind may keep the output open for ever.
            return lines, None if lines else self._process.poll()
        return lines, self._process.wait()

    def end(self) -> None:
        """The command and what it started in its own process group, nothing else."""
        if self._process is None or self._process.poll() is not None:
            return
        os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._lines.put(line)
        self._lines.put(None)


def main(argv: Sequence[str]) -> int:
    arguments = _parse(argv)
    signal.signal(signal.SIGTERM, _as_exit)
    _ray.init(address="auto", log_to_driver=False, logging_level=logging.WARNING)
    if problem := too_little(_ray.nodes(), arguments.nodes, arguments.gpus):
        print(problem, file=sys.stderr)
        return 1
    group = placement_group(
        [{"GPU": arguments.gpus} if arguments.gpus else {"CPU": 1}] * arguments.nodes, strategy="STRICT_SPREAD"
    )
    if not group.wait(arguments.wait):
        print(
            f"{arguments.nodes} nodes with {arguments.gpus} GPUs each exist but were not free after "
            f"{arguments.wait:g} s; end what holds them (`ray status` shows it)",
            file=sys.stderr,
        )
        return 1
    actors = [_actor(group, rank, arguments.gpus) for rank in range(arguments.nodes)]
    try:
        return _run(actors, arguments.command)
    finally:
        ending = [actor.end.remote() for actor in actors]
        _ray.wait(ending, num_returns=len(ending), timeout=_END_SECONDS)


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="on_nodes", description="Runs one command on each of several Ray nodes.")
    parser.add_argument("--nodes", type=int, required=True, help="how many different nodes")
    parser.add_argument("--gpus", type=int, required=True, help="GPUs on each of them; 0: none")
    parser.add_argument(
        "--wait",
        type=float,
        default=_FREE_SECONDS,
        help="seconds to wait for GPUs that others hold (default %(default)g)",
    )
    parser.add_argument("command", nargs="+", help="after --: the command and its arguments")
    return parser.parse_args(argv)


def too_little(nodes: Sequence[Mapping[str, Any]], wanted: int, gpus: int) -> str | None:
    """Why the cluster can never hold this, with the numbers; `nodes` as `ray.nodes()` gives them."""
    alive = [node["Resources"].get("GPU", 0) for node in nodes if node["Alive"]]
    fitting = sum(has >= gpus for has in alive)
    if fitting >= wanted:
        return None
    counts = ", ".join(f"{has:g}" for has in sorted(alive, reverse=True))
    return (
        f"{wanted} nodes with {gpus} GPUs each are wanted, the cluster has {len(alive)} nodes, {fitting} of them with "
        f"enough (GPUs by node: {counts}); add nodes to the cluster, or ask for fewer"
    )


def _actor(group: PlacementGroup, rank: int, gpus: int) -> Any:
    strategy = PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=rank)
    actor_class: Any = _ray.remote(OneNode)
    return actor_class.options(num_cpus=0, num_gpus=gpus, scheduling_strategy=strategy).remote()


def _run(actors: Sequence[Any], command: Sequence[str]) -> int:
    addresses: list[str] = _ray.get([actor.address.remote() for actor in actors])
    starting = [actor.start.remote(_filled(command, addresses, rank)) for rank, actor in enumerate(actors)]
    for rank, problem in enumerate(_ray.get(starting)):
        if problem is not None:
            print(f"node {rank} ({addresses[rank]}) cannot start the command: {problem}", file=sys.stderr)
            return 1
    polls: dict[Any, int] = {actor.poll.remote(): rank for rank, actor in enumerate(actors)}
    while polls:
        done, _ = _ray.wait(list(polls), num_returns=1)
        rank = polls.pop(done[0])
        try:
            lines, code = cast(tuple[list[str], int | None], _ray.get(done[0]))
        except RayActorError as error:
            print(f"node {rank} ({addresses[rank]}) was lost: {error}", file=sys.stderr)
            return 1
        prefix = f"[node {rank}] " if len(actors) > 1 else ""
        sys.stdout.write("".join(f"{prefix}{line.rstrip()}\n" for line in lines))
        sys.stdout.flush()
        if code is None:
            polls[actors[rank].poll.remote()] = rank
        elif code != 0:
            others = ", the others are ended" if polls else ""
            print(f"node {rank} ({addresses[rank]}) failed with exit code {code}{others}", file=sys.stderr)
            return code if code > 0 else 1
    return 0


def _filled(command: Sequence[str], addresses: Sequence[str], rank: int) -> list[str]:
    """Not str.format: an argument may hold braces of its own."""
    values = {"{master_addr}": addresses[0], "{node_rank}": str(rank), "{nnodes}": str(len(addresses))}
    filled: list[str] = []
    for argument in command:
        for name, value in values.items():
            argument = argument.replace(name, value)
        filled.append(argument)
    return filled


def _as_exit(number: int, _: object) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

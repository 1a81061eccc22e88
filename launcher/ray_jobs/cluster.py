"""The cluster a launcher uses: found, or a head on this machine that ends with it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from launcher.checks.network import is_own_address, resolve
from launcher.errors import PreflightError
from launcher.ray_jobs.client import connect
from launcher.ray_jobs.head_process import GRACE_SECONDS

_START_SECONDS = 180.0  # Ray's own import from a network file system can take a minute
_POLL_SECONDS = 0.1
_END_SECONDS = GRACE_SECONDS + 15
_LONGEST_FOLDER = 20  # characters: Ray appends up to 85 for its Unix sockets, whose names end at 107
_KEEPER = Path(__file__).with_name("head_process.py")
_SHOWN_LINES = 8
_AUTH_MODE = "RAY_AUTH_MODE"
_TOKENS = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
_USUAL_TOKEN = "~/.ray/auth_token"  # where Ray leaves the one that it makes


@dataclass(frozen=True)
class Cluster:
    """`address` is the job server's, http://host:port; `head` the process that keeps an owned head."""

    address: str
    owned: bool
    head: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def pid(self) -> int | None:
        """SIGTERM to it ends an owned head, its jobs, and removes its folder."""
        return None if self.head is None else self.head.pid

    @property
    def ray(self) -> str:
        """The command of a shell that reaches it; an owned head's mode of authentication is not in that shell."""
        return f"{_AUTH_MODE}=token ray" if self.owned and os.environ.get(_AUTH_MODE) == "token" else "ray"

    @property
    def head_has_ended(self) -> bool:
        """Whether an owned head is gone; never so for a cluster of somebody else."""
        return self.head is not None and self.head.poll() is not None


@contextmanager
def cluster(address: str | None, *, num_gpus: int, node_ip: str, keep: bool = False) -> Generator[Cluster]:
    """The cluster at `address`, or (None) a head started here, which ends with the block unless `keep` is set.

    A head inherits this process' environment, and with it the keys that its workers need. Only what it started is
    ended with it. Where the block raises, it is ended even with `keep`. Raises PreflightError when it is not there.
    """
    if address is not None:
        yield Cluster(connect(address).address, owned=False)
        return
    _validate_node_ip(node_ip)
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir=_short_folder()))
    with tempfile.TemporaryFile() as output, ExitStack() as ending:
        ending.enter_context(_one_auth_mode())
        ending.callback(shutil.rmtree, folder, ignore_errors=True)
        dashboard, client_server = _free_ports(2)
        head = _start(folder, _head_command(folder, node_ip, num_gpus, dashboard, client_server), output, keep)
        ending.callback(_end, head)
        owned = Cluster(f"http://127.0.0.1:{dashboard}", owned=True, head=head)
        _wait_until_up(owned, folder, output)
        yield owned
        if keep:
            ending.pop_all()


@contextmanager
def _one_auth_mode() -> Generator[None]:
    """Where it is not set, a head wants a token as soon as its user has one, and Ray's client still sends none."""
    if _AUTH_MODE in os.environ:
        yield
        return
    # Of `os.path`: a home that is not known or cannot be looked into holds no token, and is no error.
    has_token = any(os.environ.get(name) for name in _TOKENS) or os.path.exists(os.path.expanduser(_USUAL_TOKEN))
    os.environ[_AUTH_MODE] = "token" if has_token else "disabled"
    try:
        yield
    finally:
        os.environ.pop(_AUTH_MODE, None)


def _validate_node_ip(node_ip: str) -> None:
    """Ray waits minutes for a head at an address of another machine."""
    if not any(is_own_address(address) for address in resolve(node_ip)):
        raise PreflightError(
            f"a Ray head cannot be started at {node_ip}, which is no address of this machine; unset MASTER_ADDR, or "
            "name the cluster that runs there with --ray-address"
        )


def _head_command(folder: Path, node_ip: str, num_gpus: int, dashboard: int, client_server: int) -> list[str]:
    """Nothing at Ray's usual ports, which another Ray here may hold; 0 lets each part take what is free.

    Workers too: their usual 10002-19999 holds the ports of agent servers.
    """
    ports = {
        "port": 0,
        "node-manager-port": 0,
        "object-manager-port": 0,
        "dashboard-agent-listen-port": 0,
        "dashboard-agent-grpc-port": 0,
        "runtime-env-agent-port": 0,
        "metrics-export-port": 0,
        "min-worker-port": 0,
        "max-worker-port": 0,
        "dashboard-port": dashboard,
        "ray-client-server-port": client_server,
    }
    return [
        sys.executable,
        "-P",  # the folder that a user starts from is no place to import Ray from
        *("-m", "ray.scripts.scripts", "start", "--head", "--block", "--disable-usage-stats"),
        *(f"--{name}={number}" for name, number in ports.items()),
        f"--node-ip-address={node_ip}",
        "--dashboard-host=127.0.0.1",  # whoever reaches the job server may run commands as this user
        f"--num-gpus={num_gpus}",
        f"--temp-dir={folder}",
    ]


def _start(folder: Path, command: list[str], output: IO[bytes], keep: bool) -> subprocess.Popen[bytes]:
    """In a session of its own: Ctrl-C in the terminal is the launcher's, which stops the job first."""
    environment = {
        name: value for name, value in os.environ.items() if name not in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS")
    }
    # Jobs call `python3`: here that is the one that has Ray, also where its environment was not activated.
    environment["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), environment.get("PATH", os.defpath)))
    # Below `uv run` Ray would send this whole folder to its workers and start them through uv.
    environment["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"
    # There is no other node that could take over while this one drains.
    environment["RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"] = "0"
    return subprocess.Popen(
        [sys.executable, "-I", str(_KEEPER), str(folder), "kept" if keep else "tied", *command],
        stdin=subprocess.DEVNULL if keep else subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,
    )


def _wait_until_up(owned: Cluster, folder: Path, output: IO[bytes]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    # Ray writes this file when all parts of the head are up.
    while not (folder / "ray_current_cluster").exists():
        if owned.head_has_ended:
            raise PreflightError(f"the Ray head did not start; its last lines:\n{_last_lines(output)}")
        if time.monotonic() > deadline:
            raise PreflightError(
                f"the Ray head was not up after {_START_SECONDS:g} s; start one with `ray start --head` and pass "
                f"--ray-address auto; its last lines:\n{_last_lines(output)}"
            )
        time.sleep(_POLL_SECONDS)
    connect(owned.address)


def _end(head: subprocess.Popen[bytes]) -> None:
    if head.stdin is not None:
        head.stdin.close()
    if head.poll() is None:
        head.terminate()
    try:
        head.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(head.pid, signal.SIGKILL)
        head.wait()


def _last_lines(output: IO[bytes]) -> str:
    output.seek(0)
    return "\n".join(output.read().decode(errors="replace").splitlines()[-_SHOWN_LINES:])


def _short_folder() -> str:
    folder = tempfile.gettempdir()
    return folder if len(folder) <= _LONGEST_FOLDER else "/tmp"


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("", 0))
        return [each.getsockname()[1] for each in sockets]

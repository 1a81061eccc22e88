"""The process: sockets, signals, ready file, watch on the parent; ends with every trial ended."""

import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Coroutine, Generator, Sequence
from pathlib import Path
from typing import Any

import uvicorn

from disk.atomic_file import atomic_file
from disk.open_files import allow_open_files
from harbor_service.access import is_loopback
from harbor_service.bad_setting import BadSetting
from harbor_service.dashboard import HOST as DASHBOARD_HOST
from harbor_service.dashboard import make_dashboard
from harbor_service.environments import environment_config
from harbor_service.model_client import close_shared_client, shared_client
from harbor_service.routes import make_app
from harbor_service.settings import Settings
from harbor_service.task_store import TaskStore
from harbor_service.trial_desk import TrialDesk
from harbor_service.trial_folders import TrialFolders
from harbor_service.trial_metrics import TrialMetrics
from harbor_service.trial_runner import TrialRunner

_logger = logging.getLogger(__name__)
# Longer than any client keeps an idle connection: a server that closes first loses a request now and then.
_KEEP_ALIVE_SECONDS = 120
_PRUNE_EVERY_SECONDS = 60.0


class _Server(uvicorn.Server):
    """A uvicorn server that leaves signals to us, since trials end before connections do."""

    def __init__(self, app: Any, on_started: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                lifespan="off",
                ws="none",
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=2,
            )
        )
        self._on_started = on_started

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_started()


async def serve(settings: Settings, keys: Sequence[str] = ()) -> int:
    """Serve until SIGTERM, SIGINT or the end of the parent; exit code 0, or 130 after SIGINT. No page shows `keys`.

    SIGTERM leaves running trials the drain time; any further signal cuts short what is being waited for. A trial
    whose clean-up does not end in the shutdown grace ends the process at once, from here.

    Raises:
        BadSetting: an address that cannot be bound, a folder that cannot be written, a parent that is gone.
    """
    trials_dir = _writable(settings.trials_dir)
    metrics = TrialMetrics()
    desk = TrialDesk(settings.max_concurrent, settings.max_queued, metrics.ended)
    metrics.bind(lambda: len(desk.running), lambda: len(desk.queued), desk.max_concurrent)
    folders = TrialFolders(
        trials_dir, keep_seconds=settings.keep_trials_hours * 3600, keep_bytes=settings.keep_trials_gb * 1e9
    )
    runner = TrialRunner(
        tasks=TaskStore(settings.harbor_tasks_dir),
        environment=environment_config(
            settings.environment, settings.environment_options, unsafe=settings.unsafe_no_sandbox
        ),
        folders=folders,
        agent_timeout=settings.agent_timeout,
        setup_timeout=settings.setup_timeout,
        agent_options=settings.agent_options,
    )
    allow_open_files()
    listener = _listen(settings.host, settings.port, "--port")
    port = listener.getsockname()[1]
    warn_when_open(settings)

    shared_client()  # made here, or the first trial would wait for the certificate store

    stop, hurry = asyncio.Event(), asyncio.Event()
    codes: list[int] = []
    drain_seconds = settings.drain_seconds

    def end(code: int, reason: str, drains: bool) -> None:
        nonlocal drain_seconds
        if codes:
            hurry.set()
        else:
            drain_seconds = drain_seconds if drains else 0.0
            _logger.warning("ending: %s, running trials get %g s", reason, drain_seconds)
        codes.append(code)
        stop.set()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, end, 0, "SIGTERM", True)
    loop.add_signal_handler(signal.SIGINT, end, 130, "SIGINT", False)

    def started() -> None:
        _logger.info("listening on %s:%d, tasks in %s", settings.host, port, settings.harbor_tasks_dir)
        if settings.ready_file is not None:
            with atomic_file(settings.ready_file) as file:
                file.write(json.dumps({"host": settings.host, "port": port, "pid": os.getpid()}).encode())

    servers = [(_Server(make_app(settings, runner, desk, metrics), started), listener)]
    if settings.dashboard_port:
        page = _listen(DASHBOARD_HOST, settings.dashboard_port, "--dashboard-port")
        servers.append(
            (_Server(make_dashboard(desk, trials_dir, lambda: [*keys, *_tokens(settings)]), lambda: None), page)
        )
        _logger.info("dashboard on http://%s:%d/", DASHBOARD_HOST, settings.dashboard_port)

    # Harbor's modules are half a million objects that never die: walking them again and again cost 8% of a trial.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)

    with _parent_watched(settings.parent_pid, lambda: end(0, "the parent process is gone", False)):
        pruning = asyncio.create_task(_prune(folders))
        serving = [asyncio.create_task(server.serve(sockets=[sock])) for server, sock in servers]
        await stop.wait()
        closing = "the server is shutting down"
        if drain_seconds:
            await _unless(hurry, desk.drain(closing, drain_seconds))
            hurry.clear()
        await _unless(hurry, desk.close(closing, settings.shutdown_grace))
        pruning.cancel()
        for server, _ in servers:
            server.should_exit = True
        await asyncio.gather(*serving)
    if left := len(desk.running):
        # Waiting for their tasks, as asyncio would, could take for ever.
        _logger.error("%d trials did not end in time; local sandboxes end with this process", left)
        logging.shutdown()
        os._exit(codes[0])
    await close_shared_client()
    return codes[0]


def _tokens(settings: Settings) -> list[str]:
    secrets = [secret for secret in (settings.token, settings.admin_secret) if secret is not None]
    return [text for secret in secrets for text in secret.accepted()]


async def _unless(event: asyncio.Event, work: Coroutine[Any, Any, Any]) -> None:
    """Wait for `work`, but not beyond `event`."""
    tasks = [asyncio.ensure_future(work), asyncio.ensure_future(event.wait())]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


async def _prune(folders: TrialFolders) -> None:
    while True:
        try:
            removed = await asyncio.to_thread(folders.prune, time.time())
        except OSError as error:
            _logger.warning("old trial folders are not removed: %s", error)
        else:
            if removed:
                _logger.info("removed %d old trial folders below %s", len(removed), folders.root)
        await asyncio.sleep(_PRUNE_EVERY_SECONDS)


def _listen(host: str, port: int, flag: str) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Inherited by every connection: a trainer machine that vanished ends its trials within two minutes.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
        listener.bind(address)
    except OSError as error:
        raise BadSetting(f"cannot listen on {host}:{port} ({error}); choose another {flag}") from error
    return listener


def _writable(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadSetting(f"cannot make --trials-dir {folder}: {error}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise BadSetting(f"--trials-dir {folder} cannot be written by this user")
    return folder.resolve()


def warn_when_open(settings: Settings) -> None:
    """Warn, loudly, when anybody on the network may run trials here."""
    if settings.token is None and not is_loopback(settings.host):
        _logger.warning(
            "OPEN TO THE NETWORK: %s is not loopback and no token is set. Whoever reaches it can run commands in "
            "this machine's sandboxes. Give --token-file (or AGENT_SERVER_TOKEN_FILE) here and on the trainer.",
            settings.host,
        )


@contextlib.contextmanager
def _parent_watched(pid: int | None, on_gone: Callable[[], None]) -> Generator[None, None, None]:
    """Call `on_gone` once process `pid` has ended; its number being used again cannot deceive a pidfd."""
    if pid is None:
        yield
        return
    try:
        descriptor = os.pidfd_open(pid)
    except OSError as error:
        raise BadSetting(f"--parent-pid {pid} cannot be watched: {error}") from error
    loop = asyncio.get_running_loop()

    def gone() -> None:
        loop.remove_reader(descriptor)
        on_gone()

    loop.add_reader(descriptor, gone)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)

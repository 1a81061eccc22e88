"""The agent server as a child process: started, watched, started again when it dies, ended with the run."""

import asyncio
import json
import os
import secrets
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from harbor_service import QUIET_ENVIRONMENT

SCRIPT = Path(__file__).resolve().parent.parent / "agent_server.py"
READY_SECONDS = 120.0
END_SECONDS = 20.0
MOST_RESTARTS = 5
# Ends of the names of secrets, or all of a name without its underscore. Trials have no use for them; the server's own
# token comes from a file.
KEPT_BACK = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")


class AgentServerFailed(RuntimeError):
    """The agent server did not start, or died too often."""


class AgentServerProcess:
    """One agent server on a loopback port, used as `async with`; `url` and `token_file` are what callers need."""

    def __init__(
        self,
        *,
        tasks_dir: Path,
        work_dir: Path,
        max_concurrent: int,
        agent_timeout: float,
        agent_options: dict[str, object],
        warn: Callable[[str], None],
    ) -> None:
        self._tasks_dir = tasks_dir
        self._work_dir = work_dir
        self._max_concurrent = max_concurrent
        self._agent_timeout = agent_timeout
        self._agent_options = agent_options
        self._warn = warn
        self._process: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None
        self._port = 0
        self.log = work_dir / "agent_server.log"
        self.token_file = work_dir / "agent_server.token"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    async def __aenter__(self) -> "AgentServerProcess":
        self._work_dir.mkdir(parents=True, exist_ok=True)
        self.token_file.unlink(missing_ok=True)
        descriptor = os.open(self.token_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
        try:
            await self._start()
        except BaseException:
            await self._end()
            raise
        self._watch = asyncio.create_task(self._keep_alive(), name="agent-server-watch")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])
        await self._end()
        self.token_file.unlink(missing_ok=True)

    async def _start(self) -> None:
        ready = self._work_dir / "agent_server.ready"
        ready.unlink(missing_ok=True)
        arguments = [
            sys.executable, str(SCRIPT),
            "--host", "127.0.0.1",
            "--port", str(self._port),
            "--max-concurrent", str(self._max_concurrent),
            "--agent-timeout", str(self._agent_timeout),
            "--harbor-tasks-dir", str(self._tasks_dir),
            "--trials-dir", str(self._work_dir / "trials"),
            "--environment", "local",
            "--agent-options", json.dumps(self._agent_options),
            "--token-file", str(self.token_file),
            "--ready-file", str(ready),
            "--parent-pid", str(os.getpid()),
        ]  # fmt: skip
        environment = {k: v for k, v in os.environ.items() if not f"_{k.upper()}".endswith(KEPT_BACK)}
        environment |= QUIET_ENVIRONMENT
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                # Ctrl-C at the terminal is for the run; it ends the server when its trials have been cancelled.
                start_new_session=True,
            )
        try:
            async with asyncio.timeout(READY_SECONDS):
                while not ready.exists():
                    if self._process.returncode is not None:
                        raise AgentServerFailed(
                            f"the agent server ended with code {self._process.returncode} while starting: "
                            f"{self._last_words()}; its log is {self.log}"
                        )
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AgentServerFailed(
                f"the agent server did not listen within {READY_SECONDS:g} s; its log is {self.log}"
            ) from None
        self._port = int(json.loads(ready.read_text())["port"])

    async def _keep_alive(self) -> None:
        for restart in range(1, MOST_RESTARTS + 1):
            assert self._process is not None
            code = await self._process.wait()
            self._warn(
                f"the agent server ended with code {code} ({self._last_words()}); its trials are discarded, "
                f"starting it again ({restart} of at most {MOST_RESTARTS})"
            )
            try:
                await self._start()
            except AgentServerFailed as error:
                self._warn(str(error))

    async def _end(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(END_SECONDS):
                await process.wait()
        except TimeoutError:
            self._warn(f"the agent server did not end within {END_SECONDS:g} s of SIGTERM and was killed")
            process.kill()
            await process.wait()

    def _last_words(self) -> str:
        try:
            lines = self.log.read_text(errors="replace").strip().splitlines()
        except OSError:
            return "no log"
        return lines[-1][:300] if lines else "it said nothing"

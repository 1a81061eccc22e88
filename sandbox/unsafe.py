"""`--unsafe-no-sandbox`: trials as ordinary processes, for machines on which bubblewrap cannot work.

Nothing isolates them. A command has the network, sees this machine's files and processes, can leave processes behind
by starting a session of its own, and can forge its reward. What is kept: limits of one process, time and output limits,
a clean environment, a user of its own where the server is root, and the end of each command's process group.

Tasks write to /app, /tests, /logs and /solution. Here these are folders below the trial's own folder, and their names
are replaced in commands and in the text files that are copied in.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, override

from disk.usage import disk_use
from sandbox.bubblewrap import BASH, CLEAN_ENV, SandboxUnavailable
from sandbox.cell import Finished
from sandbox.channel import Capture
from sandbox.environment import LocalEnvironment
from sandbox.holder import HolderFailed
from sandbox.identity import Identity
from sandbox.limits import Limits, SandboxLimitExceeded
from sandbox.rootfs import RootFs
from sandbox.trial_dir import TrialDir, prepare_base_dir

_logger = logging.getLogger(__name__)

_FOLDERS = ("app", "tests", "logs/agent", "logs/verifier", "logs/artifacts", "solution", "root", "tmp")
_WIPED = ("root", "tests", "solution", "logs/verifier")
_REPLACED = re.compile(r"(?<![\w.})~/-])/(?=(?:app|tests|logs|solution)(?![\w.-]))")
_TEXT_BYTES = 1 << 20
_WATCH_S = 1.0
_LAST_BYTES = 1 << 18
_TIMED_OUT, _KILLED = 124, 137


def unsafe_base_dir() -> Path:
    """One folder per user in the system's temporary folder."""
    return Path(tempfile.gettempdir()) / f"agent-trials-without-sandbox-{os.geteuid()}"


class _Files(RootFs):
    """Replaces the well-known folders in the text files that are copied in."""

    def __init__(self, fd: int, identity: Identity, root: Path) -> None:
        super().__init__(fd, identity)
        self._root = root

    @override
    def _put(self, source: Path, folder: int, name: str, mode: int | None) -> None:
        try:
            text = source.read_text() if source.stat().st_size <= _TEXT_BYTES else ""
        except UnicodeDecodeError:
            text = ""
        replaced = replace_folders(text, self._root)
        if replaced == text:
            super()._put(source, folder, name, mode)
            return
        with tempfile.NamedTemporaryFile("w") as copy:
            copy.write(replaced)
            copy.flush()
            super()._put(Path(copy.name), folder, name, source.stat().st_mode if mode is None else mode)


def replace_folders(text: str, root: Path) -> str:
    """`text` with /app, /tests, /logs and /solution, where a path begins with them, put below `root`."""
    return _REPLACED.sub(lambda _: f"{root}/", text)


class UnsafeSandbox:
    """The operations of `Sandbox`, without a sandbox."""

    def __init__(self, limits: Limits, base_dir: Path | None) -> None:
        self.limits = limits
        self.read_only: list[str] = []
        self._base_dir = base_dir or unsafe_base_dir()
        self._trial: TrialDir | None = None
        self._files: _Files | None = None
        self._trash = -1
        self._emptied = 0
        # Not waited for before the end: a dead leader keeps the number of its group from being given away.
        self._commands: list[subprocess.Popen[bytes]] = []
        self._watching: asyncio.Task[None] | None = None
        self._exceeded = ""

    @property
    def files(self) -> RootFs:
        if self._files is None:
            raise HolderFailed("the trial is not running")
        return self._files

    async def start(self) -> None:
        """Make the trial's folders. Raises SandboxUnavailable."""
        prepare_base_dir(self._base_dir)
        try:
            self._trial = trial = TrialDir.claim(self._base_dir)
            root = os.open(trial.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._files = _Files(root, trial.identity, trial.root)
            for name in _FOLDERS:
                self._files.make_dir(name, 0o755)
            trash = trial.path / "trash"
            trash.mkdir()
            trial.identity.own(trash)
            self._trash = os.open(trash, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._watching = asyncio.create_task(self._watch(trial.root), name="unsafe-disk")
        except BaseException:
            await self.close()
            raise

    async def run(
        self, command: str, cwd: str = "/", env: Mapping[str, str] | None = None, timeout: float | None = None
    ) -> Finished:
        """Run a bash command line; `timeout` in seconds. Raises SandboxLimitExceeded for the disk."""
        self._refuse_if_exceeded()
        if self._trial is None:
            raise HolderFailed("the trial is not running")
        root = self._trial.root
        folder = root / PurePosixPath(cwd).relative_to("/") if PurePosixPath(cwd).is_absolute() else root / cwd
        variables = {name: replace_folders(value, root) for name, value in (env or {}).items()}
        variables |= {"HOME": str(root / "root"), "TMPDIR": str(root / "tmp")}
        settings = [f"{name}={value}" for name, value in variables.items()]
        limits = self.limits
        memory = limits.memory_mb << 10
        # Of the server's own user it would count all processes of this machine.
        processes = "" if self._trial.identity.uid is None else f" -u {limits.processes}"
        script = (
            f"ulimit -c 0 -n {limits.open_files}{processes} -f {limits.file_mb << 10} -d {memory}"
            f' -v {memory * 4} || exit 70; cd -- "$1" || exit 1; exec env -i "${{@:3}}" {BASH} -c "$2"'
        )
        # Ends with the server, should that be killed.
        shell = [*self._trial.identity.prefix(), "setpriv", "--pdeathsig", "KILL", BASH, "--norc", "--noprofile"]
        process = subprocess.Popen(
            [*shell, "-c", script, "bash", str(folder), replace_folders(command, root), *settings],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=CLEAN_ENV,
            start_new_session=True,
        )
        self._commands.append(process)
        done = asyncio.Event()
        why = f"killed after printing more than {limits.flood_mb} MiB"
        over = False

        def on_output() -> None:
            nonlocal over
            if sum(output.total for output in outputs) > limits.flood_mb << 20:
                over = True
                done.set()

        outputs: list[Capture] = []
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            fd = os.dup(pipe.fileno())
            pipe.close()
            os.set_blocking(fd, False)
            outputs.append(Capture(fd, limits.output_kb << 10, on_output))
        pidfd = os.pidfd_open(process.pid)
        loop = asyncio.get_running_loop()
        loop.add_reader(pidfd, done.set)
        try:
            try:
                async with asyncio.timeout(timeout):
                    await done.wait()
            except TimeoutError:
                why = f"killed after {timeout:g} s"
            code = _exit_code(process)
            for output in outputs:
                output.channel.drain(_LAST_BYTES)
            self._refuse_if_exceeded()
            stdout, stderr = (output.text() for output in outputs)
            if code is None:
                return Finished(_KILLED if over else _TIMED_OUT, stdout, stderr, why)
            return Finished(code, stdout, stderr)
        finally:
            loop.remove_reader(pidfd)
            os.close(pidfd)
            if _exit_code(process) is None:
                _kill_group(process)
            for output in outputs:
                output.channel.close()

    async def make_room(self, size: int, inodes: int) -> None:
        """There is no limit of its own to raise: the disk is watched."""

    async def restart(self) -> None:
        """End the process groups of all commands; empty what the verifier relies on."""
        self._end_groups()
        self._refuse_if_exceeded()
        assert self._trial is not None
        root = self._trial.root
        with self._trial.identity.file_access():
            os.fchmod(self.files.fd, 0o755)
        for name in ("logs", "logs/agent", "logs/artifacts"):
            if (root / name).is_symlink() or not (root / name).is_dir():
                self._empty(name)
        for name in _WIPED:
            self._empty(name)

    def _empty(self, name: str) -> None:
        self._emptied += 1
        self.files.empty_dir(name, self._trash, str(self._emptied), 0o755)

    async def close(self) -> None:
        """End the process groups of all commands and remove the folder."""
        if self._watching is not None:
            self._watching.cancel()
        self._end_groups()
        if self._files is not None:
            self._files.close()
            self._files = None
        if self._trash >= 0:
            os.close(self._trash)
            self._trash = -1
        if self._trial is not None:
            try:
                self._trial.remove()
            except OSError as error:
                # A process that left its group still writes there, or closed a folder to us.
                _logger.warning("%s was not removed: %s", self._trial.path, error)
            self._trial = None

    def _end_groups(self) -> None:
        for command in self._commands:
            _kill_group(command)
            command.wait()
        self._commands.clear()

    def _refuse_if_exceeded(self) -> None:
        if self._exceeded:
            raise SandboxLimitExceeded(self._exceeded)

    async def _watch(self, root: Path) -> None:
        while not self._exceeded:
            await asyncio.sleep(_WATCH_S)
            used = await asyncio.to_thread(disk_use, root) >> 20
            if used > self.limits.disk_mb:
                self._exceeded = (
                    f"the trial wrote {used} MiB of files and was ended; the limit disk_mb is {self.limits.disk_mb}"
                )
                self._end_groups()


def _exit_code(process: subprocess.Popen[bytes]) -> int | None:
    """As a shell reports it; None while it runs. Does not take the process's number away."""
    code = process.returncode
    if code is None:
        ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if ended is None:
            return None
        code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
    return code if code >= 0 else 128 - code


def _kill_group(leader: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader.pid, signal.SIGKILL)


class UnsafeEnvironment(LocalEnvironment):
    """LocalEnvironment without its sandbox; only the server's `--unsafe-no-sandbox` chooses it."""

    @override
    def _make_sandbox(self, limits: Limits, base_dir: Path | None, read_only: list[str]) -> UnsafeSandbox:
        return UnsafeSandbox(limits, base_dir)

    @staticmethod
    @override
    def type() -> str:
        return "unsafe"

    @classmethod
    @override
    def preflight(cls, kwargs: dict[str, Any] | None = None) -> None:
        """Raises: SandboxUnavailable: a program is missing."""
        missing = [name for name in (BASH, "setpriv") if shutil.which(name) is None]
        if missing:
            raise SandboxUnavailable(f"programs {missing} are missing; install the packages bash and util-linux")
        _logger.warning(
            "NO SANDBOX (--unsafe-no-sandbox): what the model writes runs as %s on this machine, with its network, its "
            "files and its processes, and can forge rewards. Use it only on a machine that holds nothing of value.",
            "users of their own" if os.geteuid() == 0 else "your own user",
        )

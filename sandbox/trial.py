"""One trial's sandbox, without Harbor: files that stay, processes that a restart ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from sandbox.bubblewrap import (
    CONTROL_DIR,
    ETC_TEXTS,
    bwrap_argv,
    bwrap_for_trials,
    etc_from_host,
    system_folders,
    system_links,
)
from sandbox.cell import Cell, CellFailed, Finished, loop_command
from sandbox.cgroup import TrialGroup, trial_group
from sandbox.holder import Holder, HolderFailed
from sandbox.limits import Limits, SandboxLimitExceeded
from sandbox.memory import TrialMemory, look
from sandbox.rootfs import RootFs, discard
from sandbox.seccomp import seccomp_filter
from sandbox.trial_dir import TrialDir, default_base_dir, prepare_base_dir

_SYSTEM_NAMES = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_MOUNT_POINTS = ("etc", "proc", "dev", CONTROL_DIR.removeprefix("/"))
_FOLDERS = ("run", "home", "opt", "srv", "mnt", "media", "var", "var/lib", "var/log")
_OPEN_FOLDERS = ("tmp", "var/tmp")
_WIPED = ("root", "tests", "solution")
_LOGS = ("agent", "artifacts")
_ROOM_BYTES = 32 << 20
_ROOM_INODES = 1_000
_MOUNT_POINT_INODES = 64
_FILL_RATE = 4 << 30  # bytes of memory that one processor can fill in a second
_SHORTEST_LOOK_S, _LONGEST_LOOK_S = 0.1, 1.0


class Sandbox:
    """`await start()`, any number of `run` and `files` operations, `restart()` between phases, `await close()`."""

    def __init__(
        self, limits: Limits | None = None, base_dir: Path | None = None, read_only: list[str] | None = None
    ) -> None:
        self.limits = limits or Limits()
        self._base_dir = base_dir or default_base_dir()
        self._read_only = read_only or []
        self._trial: TrialDir | None = None
        self._holder: Holder | None = None
        self._files: RootFs | None = None
        self._trash = -1
        self._cell: Cell | None = None
        self._starting: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._ending = asyncio.Lock()
        self._memory: TrialMemory | None = None
        self._group: TrialGroup | None = None
        self._watching: asyncio.Task[None] | None = None
        self._exceeded = ""
        self._cells = 0
        self._discarded = 0
        self._size = self.limits.disk_mb << 20
        self._inodes = self.limits.inodes

    @property
    def files(self) -> RootFs:
        """The trial's files. Changes to what is mounted over them (/usr, /etc, /proc, /dev) are not seen inside."""
        if self._files is None or self._closing is not None:
            raise HolderFailed("the sandbox is not running")
        return self._files

    @property
    def read_only(self) -> list[str]:
        """Paths inside the sandbox that nothing can be copied to."""
        return [*(f"/{name}" for name in (*system_folders(), *_MOUNT_POINTS)), *self._read_only]

    async def start(self) -> None:
        """Make the trial's files and its first cell. A failed or cancelled start leaves nothing behind.

        Raises:
            SandboxUnavailable, HolderFailed, CellFailed
        """
        try:
            prepare_base_dir(self._base_dir)
            bwrap = bwrap_for_trials(self._base_dir)
            self._trial = trial = TrialDir.claim(self._base_dir)
            (trial.control / "seccomp").write_bytes(seccomp_filter())
            argv = bwrap_argv(
                bwrap,
                files=trial.root,
                terminals=trial.terminals,
                control=trial.control,
                limits=self.limits,
                read_only=self._read_only,
                command=loop_command(self.limits),
            )
            self._holder = Holder(trial, self.limits, argv)
            await self._holder.start()
            self._group = trial_group(trial.path.name, self.limits, self._holder.family)
            self._open_files(trial, self._holder.pid)
            self._memory = TrialMemory(self._holder.pid)
            self._watching = asyncio.create_task(self._watch(self._memory), name="sandbox-memory")
            await self._alive_cell()
        except BaseException:
            await self.close()
            raise

    def _open_files(self, trial: TrialDir, holder: int) -> None:
        # Another process's root leads into its mount namespace, where the tmpfs is.
        mount = os.open(f"/proc/{holder}/root{trial.root}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        try:
            with trial.identity.file_access():
                for name, mode in (("root", 0o755), ("etc", 0o755), ("trash", 0o700)):
                    os.mkdir(name, mode, dir_fd=mount)
                _make_etc(mount)
                self._files = RootFs(os.open("root", flags, dir_fd=mount), trial.identity)
                self._trash = os.open("trash", flags, dir_fd=mount)
        finally:
            os.close(mount)
        for name in _FOLDERS:
            self._files.make_dir(name)
        for name in _OPEN_FOLDERS:
            self._files.make_dir(name, 0o1777)
        self._reset_files()

    async def run(
        self, command: str, cwd: str = "/", env: Mapping[str, str] | None = None, timeout: float | None = None
    ) -> Finished:
        """Run a bash command line with exactly the given variables; `timeout` in seconds.

        If the sandbox's first process is gone, a new cell with the same files is started first.

        Raises:
            SandboxLimitExceeded: the trial's processes held too much memory; now and for every later command.
        """
        cell = await self._alive_cell()
        ended = await cell.run(command, cwd, env or {}, timeout)
        self._refuse_if_exceeded()
        return ended

    async def restart(self) -> None:
        """End every process and come back with the same files, less what could sway the next phase.

        Fresh: /root, /tests, /solution, /logs/verifier, /dev/shm, the links /bin, /lib, ..., all pipes to the server.
        Kept: everything else, /logs/agent and /logs/artifacts included.

        Raises:
            SandboxLimitExceeded: a limit of the whole trial was passed before.
        """
        if self._starting is not None and not self._starting.done():
            await asyncio.wait([self._starting])
        await self._end_cell()
        self._refuse_if_exceeded()
        # The agent may have filled its disk; that must not keep the verifier from working.
        await self.make_room(_ROOM_BYTES, _ROOM_INODES)
        self._reset_files()
        await self._alive_cell()

    async def close(self) -> None:
        """End everything and remove the folder. Goes on when the caller is cancelled; may be called repeatedly."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        try:
            for task in (self._starting, self._watching):
                if task is not None:
                    task.cancel()
            if self._holder is not None:
                await self._holder.close()
        finally:
            if self._cell is not None:
                self._cell.close()
            if self._group is not None:
                self._group.remove()
            if self._memory is not None:
                self._memory.close()
            if self._files is not None:
                self._files.close()
            if self._trash >= 0:
                os.close(self._trash)
                self._trash = -1
            if self._trial is not None:
                self._trial.remove()

    async def _watch(self, memory: TrialMemory) -> None:
        """End all processes of the trial once they hold more than all of them together may."""
        limit = self.limits.total_memory_mb << 20
        most = 0
        while True:
            # As long as the limit cannot be reached there is nothing to see.
            safe = (limit - most) / (_FILL_RATE * self.limits.cpus)
            await asyncio.sleep(min(max(safe, _SHORTEST_LOOK_S), _LONGEST_LOOK_S))
            self._look_at_group()
            if not self._exceeded:
                most, self._exceeded = await asyncio.to_thread(look, memory, self.limits)
            if self._exceeded:
                try:
                    await self._end_cell()
                except HolderFailed:
                    return

    def _look_at_group(self) -> None:
        if self._group is not None and not self._exceeded:
            self._exceeded = self._group.exceeded()

    def _refuse_if_exceeded(self) -> None:
        self._look_at_group()
        if self._exceeded:
            raise SandboxLimitExceeded(self._exceeded)

    async def _alive_cell(self) -> Cell:
        if self._closing is not None or self._holder is None:
            raise HolderFailed("the sandbox is not running")
        self._refuse_if_exceeded()
        if self._cell is None or not self._cell.alive:
            if self._starting is None or self._starting.done():
                self._starting = asyncio.create_task(self._replace_cell())
            # A half-started bwrap must not be killed: its child would be left without a parent to end it.
            await asyncio.shield(self._starting)
        if self._cell is None or not self._cell.alive:
            raise CellFailed("the sandbox ended as soon as it had started")
        return self._cell

    async def make_room(self, size: int, inodes: int) -> None:
        """Let the trial's files grow by that much where less is free: what we copy in is not the agent's use."""
        room = os.fstatvfs(self.files.fd)
        if room.f_bavail * room.f_frsize < size or room.f_ffree < inodes:
            self._size += size
            self._inodes += inodes
            assert self._holder is not None
            await self._holder.grow(self._size, self._inodes)

    async def _end_cell(self) -> None:
        """End the present cell; after a cancellation in here the next call does it again."""
        async with self._ending:
            if self._cell is not None and self._holder is not None:
                self._cell.alive = False
                await self._holder.stop_sandbox(self._cell.name)
                self._cell.close()
                self._cell = None

    async def _replace_cell(self) -> None:
        assert self._holder is not None and self._trial is not None
        await self._end_cell()
        # A removed mount point on a full disk is the agent's doing, and must not end the trial as an error of ours.
        await self.make_room(0, _MOUNT_POINT_INODES)
        # Only now, with no process left inside: bwrap resolves its mount points by name and would follow links.
        self._reset_mount_points()
        self._cells += 1
        self._cell = Cell(self._cells, self._holder, self._trial.control, self.limits)
        await self._cell.start()

    # ---- top-level names; only while no process of the trial runs ----------------

    def _reset_files(self) -> None:
        self._reset_mount_points()
        files = self.files
        for name in _WIPED:
            files.empty_dir(name, self._trash, self._label(name), 0o700 if name == "root" else 0o755)
        self._real_dir("logs")
        for name in _LOGS:
            self._real_dir(f"logs/{name}", 0o777)
        files.empty_dir("logs/verifier", self._trash, self._label("verifier"), 0o777)

    def _reset_mount_points(self) -> None:
        files, links = self.files, system_links()
        assert self._trial is not None
        with self._trial.identity.file_access():
            os.fchmod(files.fd, 0o755)
            for name in _SYSTEM_NAMES:
                if name in links and _link_target(name, files.fd) == links[name]:
                    continue
                if name not in system_folders():
                    discard(files.fd, name, self._trash, self._label(name))
                if name in links:
                    os.symlink(links[name], name, dir_fd=files.fd)
        for name in (*system_folders(), *_MOUNT_POINTS):
            self._real_dir(name)
        for path in self._read_only:
            self._real_mount_point(path)

    def _real_mount_point(self, path: str) -> None:
        """Make the way to a further read-only path real folders, and its end what this machine has there."""
        *folders, name = path.strip("/").split("/")
        if folders and folders[0] in system_folders():
            return
        for i in range(len(folders)):
            self._real_dir("/".join(folders[: i + 1]), None)
        if os.path.isdir(path):
            self._real_dir(path.strip("/"), None)
            return
        files = self.files
        assert self._trial is not None
        with self._trial.identity.file_access(), contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(os.stat(path.strip("/"), dir_fd=files.fd, follow_symlinks=False).st_mode):
                parent = os.open("/".join(folders) or ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=files.fd)
                try:
                    discard(parent, name, self._trash, self._label(name))
                finally:
                    os.close(parent)

    def _real_dir(self, path: str, mode: int | None = 0o755) -> None:
        """Make `path` a folder that we may enter, whatever it was; its parent must already be one.

        `mode` None: the one it has, with every permission for its owner.
        """
        files = self.files
        assert self._trial is not None
        with self._trial.identity.file_access():
            with contextlib.suppress(FileNotFoundError):
                if not stat.S_ISDIR(os.stat(path, dir_fd=files.fd, follow_symlinks=False).st_mode):
                    discard(files.fd, path, self._trash, self._label(path.replace("/", "-")))
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, dir_fd=files.fd)
            has = os.stat(path, dir_fd=files.fd, follow_symlinks=False).st_mode
            os.chmod(path, stat.S_IMODE(has) | 0o700 if mode is None else mode, dir_fd=files.fd)

    def _label(self, name: str) -> str:
        self._discarded += 1
        return f"{self._discarded}-{name}"


def _make_etc(mount: int) -> None:
    """The sandbox's /etc, with mount points for what it sees of this machine's."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    texts = {**ETC_TEXTS, **{name: "" for name in etc_from_host() if not os.path.isdir(f"/etc/{name}")}}
    for name, text in texts.items():
        fd = os.open(f"etc/{name}", flags, 0o644, dir_fd=mount)
        os.write(fd, text.encode())
        os.close(fd)
    for name in etc_from_host():
        parts = name.split("/") if os.path.isdir(f"/etc/{name}") else []
        for i in range(len(parts)):
            with contextlib.suppress(FileExistsError):
                os.mkdir("/".join(["etc", *parts[: i + 1]]), dir_fd=mount)


def _link_target(name: str, folder: int) -> str | None:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError:
        return None

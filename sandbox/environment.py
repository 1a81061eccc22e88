"""LocalEnvironment: Harbor trials in bubblewrap sandboxes on this machine, without a container engine."""

# pyright: reportMissingTypeStubs=false
# Harbor ships no type stubs.

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from harbor.environments.base import BaseEnvironment, EnvironmentPath, ExecResult, SandboxBuildFailedError
from harbor.environments.capabilities import EnvironmentCapabilities

from sandbox.build import Build
from sandbox.dockerfile import parse
from sandbox.errands import Errand, errand
from sandbox.limits import Limits
from sandbox.preflight import preflight
from sandbox.protocol import TrialSandbox
from sandbox.trial import Sandbox

BASE_ENV = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "TERM": "xterm",
}
_THREAD_FROM_BYTES = 4 << 20
_SPARE_BYTES = 1 << 20
_SPARE_INODES = 64
_REWARDS = ("reward.txt", "reward.json")
_REWARD_BYTES = 1 << 20
_ROOT_NAMES = (None, "root", 0, "0")


class CommandTimedOut(RuntimeError):
    """A command ran into its time limit and was killed; `stdout` and `stderr` hold what it had printed."""

    def __init__(self, seconds: float, stdout: str, stderr: str) -> None:
        super().__init__(f"Command timed out after {seconds:g} seconds")
        self.stdout = stdout
        self.stderr = stderr


class LocalEnvironment(BaseEnvironment):
    """A Harbor environment; in a TrialConfig: `import_path="sandbox.environment:LocalEnvironment"`.

    Options (`kwargs`):
        base_dir: folder for the trials' folders; default one per user in the system's temporary folder.
        limits: mapping of the names in `sandbox.limits.Limits`.
        read_only: further host paths that the sandbox sees, read-only, at the same place.

    The sandbox has no network, one user, and this machine's /usr; nothing of a prebuilt image is there.
    """

    def __init__(
        self,
        *args: Any,
        base_dir: str | Path | None = None,
        limits: Mapping[str, int] | None = None,
        read_only: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        missing = [path for path in read_only if not Path(path).is_absolute() or not Path(path).exists()]
        if missing:
            raise ValueError(f"read_only paths {missing}: give absolute paths that exist on this machine")
        self._sandbox = self._make_sandbox(
            Limits.from_mapping(limits), Path(base_dir) if base_dir else None, list(read_only)
        )
        self._workdir = "/"
        self._image_env: dict[str, str] = {}
        super().__init__(*args, **kwargs)  # pyright: ignore[reportUnknownMemberType]

    def _make_sandbox(self, limits: Limits, base_dir: Path | None, read_only: list[str]) -> TrialSandbox:
        return Sandbox(limits, base_dir, read_only)

    @staticmethod
    def type() -> str:
        return "local"

    @classmethod
    def preflight(cls, kwargs: dict[str, Any] | None = None) -> None:
        super().preflight(kwargs)
        preflight((kwargs or {}).get("base_dir"))

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(disable_internet=True)

    def _validate_definition(self) -> None:
        if not self.environment_dir.is_dir() and not self.task_env_config.docker_image:
            raise FileNotFoundError(f"the task has no environment folder: {self.environment_dir}")
        for name in ("docker-compose.yaml", "docker-compose.yml", ".dockerignore"):
            if (self.environment_dir / name).exists():
                raise SandboxBuildFailedError(
                    f"{self.environment_dir / name}: not supported by the local sandbox; use the docker environment"
                )
        if self._host_mounts:
            targets = [str(mount["target"]) for mount in self._host_mounts]
            raise ValueError(f"mounts {targets}: the local sandbox mounts no host folders; use read_only, or docker")

    # ---- life cycle -----------------------------------------------------------

    async def start(self, force_build: bool) -> None:
        """Build the task's files and start the sandbox. A failed or cancelled start leaves nothing behind.

        Raises:
            SandboxBuildFailedError: the Dockerfile cannot be carried out.
            SandboxUnavailable, HolderFailed, CellFailed: this machine cannot run the sandbox.
        """
        dockerfile = self.environment_dir / "Dockerfile"
        steps = parse(dockerfile.read_text()) if dockerfile.exists() else []
        try:
            await self._sandbox.start()
            build = Build(self._sandbox, self.environment_dir, BASE_ENV)
            await build.run(steps)
            self._image_env = build.env
            self._workdir = self.task_env_config.workdir or build.workdir
            for path in (self._workdir, *self._mount_targets(writable_only=True)):
                self._sandbox.files.make_dir(path)
            await self._upload_environment_dir_after_start()
        except BaseException:
            await self._sandbox.close()
            raise

    async def restart(self) -> None:
        """Between agent and verifier: end every process of the trial, keep its files; see `Sandbox.restart`."""
        await self._sandbox.restart()

    async def stop(self, delete: bool) -> None:
        """End the trial's processes. Its files live in memory and go with them, whatever `delete` says."""
        await self._sandbox.close()

    # ---- commands ---------------------------------------------------------------

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a bash command line.

        Raises:
            CommandTimedOut: after `timeout_sec` seconds; the command's process group has been killed.
            SandboxLimitExceeded: the trial used too much memory and was ended.
            ValueError: another user than root.
        """
        who = self._resolve_user(user)
        if who not in _ROOT_NAMES:
            raise ValueError(f"user {who!r}: the local sandbox has only root; use the docker environment for this task")
        wanted = errand(command)
        if wanted is not None:
            return self._run_errand(wanted)
        variables = {**BASE_ENV, **self._image_env, **(self._merge_env(env) or {})}
        ended = await self._sandbox.run(command, cwd or self._workdir, variables, timeout_sec)
        if ended.return_code == 124 and ended.why and timeout_sec is not None:
            raise CommandTimedOut(timeout_sec, ended.stdout, ended.stderr)
        stderr = f"{ended.stderr}\n[{ended.why}]\n" if ended.why else ended.stderr
        return ExecResult(stdout=ended.stdout, stderr=stderr, return_code=ended.return_code)

    def _run_errand(self, wanted: Errand) -> ExecResult:
        files = self._sandbox.files
        try:
            for path in wanted.paths:
                if wanted.what == "remove":
                    files.remove_file(path)
                else:
                    files.make_executable(path)
        except OSError as error:
            return ExecResult(stdout="", stderr=str(error), return_code=1)
        return ExecResult(stdout="", stderr="", return_code=0)

    # ---- files --------------------------------------------------------------------

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        source = Path(source_path)
        await self._sandbox.make_room(source.stat().st_size + _SPARE_BYTES, _SPARE_INODES)
        await _work(source.stat().st_size, lambda: self._sandbox.files.put_file(source, self._path(target_path)))

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        source = Path(source_dir)
        sizes = [path.lstat().st_size for path in source.rglob("*")]
        size = sum(sizes)
        # Each file takes whole blocks of 4 KiB.
        await self._sandbox.make_room(size + (len(sizes) << 12) + _SPARE_BYTES, len(sizes) + _SPARE_INODES)
        await _work(size, lambda: self._sandbox.files.put_tree(source, self._path(target_dir)))

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Raises: FileNotFoundError, TransferRefused (over the limit download_mb)."""
        budget = self._sandbox.limits.download_mb << 20
        self._sandbox.files.get_file(self._path(source_path), Path(target_path), budget)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copy folders and regular files; links, special files and rewards over 1 MiB are left out, with one warning.

        Raises: FileNotFoundError, OSError.
        """
        budget = self._sandbox.limits.download_mb << 20
        left_out = self._sandbox.files.get_tree(self._path(source_dir), Path(target_dir), budget)
        for path in (Path(target_dir) / name for name in _REWARDS):
            # A program that the tests run can write one that takes minutes to read, in which all trials stand still.
            if path.is_file() and path.stat().st_size > _REWARD_BYTES:
                path.unlink()
                left_out.append(path.name)
        if left_out:
            self.logger.warning("not downloaded (no regular files, or larger than the limit): %s", left_out)

    def _path(self, path: str) -> str:
        return str(PurePosixPath(self._workdir) / path)

    async def is_dir(self, path: str, user: str | int | None = None) -> bool:
        return self._sandbox.files.is_dir(self._path(path))

    async def is_file(self, path: str, user: str | int | None = None) -> bool:
        return self._sandbox.files.is_file(self._path(path))

    async def ensure_dirs(self, dirs: Sequence[EnvironmentPath], *, chmod: bool = True) -> ExecResult | None:
        """Make folders from outside: no process is started for it."""
        if not dirs:
            return None
        try:
            for path in dirs:
                self._sandbox.files.make_dir(self._path(str(path)), 0o777 if chmod else None)
        except OSError as error:
            return ExecResult(stdout="", stderr=str(error), return_code=1)
        return ExecResult(stdout="", stderr="", return_code=0)


async def _work(size: int, work: Callable[[], None]) -> None:
    """Do small copies at once, large ones beside the event loop."""
    if size < _THREAD_FROM_BYTES:
        work()
    else:
        await asyncio.to_thread(work)

"""Carrying out a Dockerfile's steps in a started sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from sandbox.dockerfile import Copy, Env, Run, Step, Workdir, copy_sources, fill_in, refused
from sandbox.limits import SandboxLimitExceeded
from sandbox.protocol import TrialSandbox
from sandbox.rootfs import TransferRefused


class Build:
    """After `run`, `workdir` and `env` are those that the task's commands start with."""

    def __init__(self, sandbox: TrialSandbox, environment_dir: Path, base_env: Mapping[str, str]) -> None:
        self.workdir = "/"
        self.env: dict[str, str] = {}
        self._sandbox = sandbox
        self._environment_dir = environment_dir
        self._base_env = dict(base_env)
        self._arguments: dict[str, str] = {}

    async def run(self, steps: list[Step]) -> None:
        """
        Raises:
            SandboxBuildFailedError: a step failed; the text names its line.
        """
        for step in steps:
            try:
                if isinstance(step, Run):
                    await self._run(step)
                elif isinstance(step, Copy):
                    self._copy(step)
                elif isinstance(step, Env):
                    self._set(step)
                else:
                    self._enter(step)
            except (OSError, TransferRefused) as error:
                raise refused("Dockerfile", step.line, f"the sandbox's files could not be written: {error}") from error
            except SandboxLimitExceeded as error:
                # No agent has acted yet: the task needs more than a trial may use.
                raise refused("Dockerfile", step.line, str(error)) from error

    @property
    def _variables(self) -> dict[str, str]:
        return {**self._arguments, **self._base_env, **self.env}

    def _enter(self, step: Workdir) -> None:
        path = fill_in(step.path.strip("\"'"), self._variables, step.line)
        self.workdir = self._inside(path, step.line)
        self._sandbox.files.make_dir(self.workdir)

    def _set(self, step: Env) -> None:
        values = {name: fill_in(value, self._variables, step.line) for name, value in step.pairs}
        (self._arguments if step.build_only else self.env).update(values)

    def _copy(self, step: Copy) -> None:
        variables = self._variables
        wanted = fill_in(step.target, variables, step.line)
        target = self._inside(wanted, step.line)
        for folder in self._sandbox.read_only:
            if PurePosixPath(target).is_relative_to(folder):
                raise refused("Dockerfile", step.line, f"COPY to {target}: {folder} is read-only in the sandbox")
        patterns = [fill_in(source, variables, step.line) for source in step.sources]
        sources = [path for text in patterns for path in copy_sources(self._environment_dir, text, step.line)]
        files = self._sandbox.files
        into = wanted.endswith(("/", "/.")) or wanted == "." or len(sources) > 1 or files.is_dir(target)
        for source in sources:
            if source.is_dir():
                files.put_tree(source, target, step.mode)
            else:
                files.put_file(source, f"{target}/{source.name}" if into else target, step.mode)

    async def _run(self, step: Run) -> None:
        env = {**self._arguments, **self._base_env, **self.env}
        ended = await self._sandbox.run(step.command, self.workdir, env)
        if ended.return_code != 0:
            said = (ended.stderr or ended.stdout).strip()[-400:]
            raise refused(
                "Dockerfile",
                step.line,
                f"RUN {step.command[:100]} ended with code {ended.return_code} {ended.why}(the sandbox has no network "
                f"and a read-only /usr): {said}",
            )

    def _inside(self, path: str, line: int) -> str:
        parts = (PurePosixPath(self.workdir) / path).parts
        if ".." in parts:
            raise refused("Dockerfile", line, f"{path}: '..' is not supported in paths of the sandbox")
        return str(PurePosixPath(*parts))

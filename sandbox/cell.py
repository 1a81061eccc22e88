"""The cell: one bwrap sandbox in which the commands of one phase (agent, or verifier) run.

Its process 1 is a shell loop that waits on a pipe for `run <n>` and then reads `/.sandbox/<n>.sh`, which the server has
written. So a command costs two forks and one exec, all inside. The agent runs with the same rights as that loop, and
could disturb it; what it can reach by that is its own phase, which it controls anyway: the verifier gets a new
cell, new pipes, and starts when no process of the old one is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.bubblewrap import BASH, CONTROL_DIR
from sandbox.channel import Capture, Lines
from sandbox.holder import START_TIMEOUT_S, Holder
from sandbox.limits import Limits

_KILLED = 137  # what a shell reports for a command that died of SIGKILL
_LAST_BYTES = 1 << 18  # of each pipe, read after the command has ended; a pipe holds 64 KiB
_BACKGROUND_PIPES = 64  # kept for the background processes of a cell
_DEATH_NOTICE_S = 0.2  # within which the end of process 1 shows on the status pipe
_STATUS_BUDGET = 1 << 20  # bytes of status lines in the life of a cell; an honest line has about 8


def loop_command(limits: Limits) -> list[str]:
    """Process 1 of a cell."""
    memory = limits.memory_mb << 10
    sizes = f"-f {limits.file_mb << 10} -d {memory} -v {memory * 4}"
    script = f"""
exec 3>&1 1>/dev/null 2>/dev/null
ulimit -c 0 -n {limits.open_files} -u {limits.processes} {sizes} || exit 70
set -m
echo ready >&3
while read -r verb n; do
    case $verb in
    run) (. "{CONTROL_DIR}/$n.sh") </dev/null & jobs[n]=$! ;;
    kill) kill -KILL -- "-${{jobs[n]}}" ;;
    esac
done
"""
    return [BASH, "--norc", "--noprofile", "-c", script]


def request_script(n: int, command: str, cwd: str, env: Mapping[str, str]) -> str:
    """What the loop reads to run one command. The outer shell keeps the pipes open until the status is written."""
    exports = "".join(f" && export {shlex.quote(f'{name}={value}')}" for name, value in env.items())
    return (
        f"exec 4>{CONTROL_DIR}/{n}.out 5>{CONTROL_DIR}/{n}.err 2>/dev/null\n"
        f"(exec >&4 2>&5 3>&- 4>&- 5>&-; cd -- {shlex.quote(cwd)} && unset OLDPWD{exports} &&"
        f" exec {BASH} -c {shlex.quote(command)})\n"
        f'echo "{n} $?" >&3\n'
    )


class CellFailed(RuntimeError):
    """The sandbox of a phase could not be started."""


@dataclass(frozen=True)
class Finished:
    """How a command ended. `why` says so when it was ended by us."""

    return_code: int
    stdout: str
    stderr: str
    why: str = ""


@dataclass
class _Running:
    done: asyncio.Event
    code: int | None = None
    why: str = ""
    outputs: list[Capture] = field(default_factory=list[Capture])


class Cell:
    """Cell number `n` of a trial. One that has ended (`alive` False) is replaced, never revived."""

    def __init__(self, n: int, holder: Holder, control: Path, limits: Limits) -> None:
        self.name = f"cell{n}"
        self.alive = False
        self._holder = holder
        self._control = control
        self._limits = limits
        self._input = -1
        self._status: Lines | None = None
        self._started = asyncio.Event()
        self._ended = asyncio.Event()
        self._running: dict[int, _Running] = {}
        self._background: list[Capture] = []
        self._last = n * 1_000_000

    async def start(self) -> None:
        """Start bwrap and wait for process 1.

        Raises:
            CellFailed: with what bwrap said.
        """
        base = self._control / self.name
        _make_pipe(Path(f"{base}.in"))
        _make_pipe(Path(f"{base}.status"))
        # Opened for both directions: neither side then waits for the other, and the loop never sees an end of input.
        self._input = os.open(f"{base}.in", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        status = os.open(f"{base}.status", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._status = Lines(status, self._on_status, self._on_end, _STATUS_BUDGET)
        self.alive = True
        self._holder.start_sandbox(self.name)
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await self._started.wait()
        except TimeoutError:
            self._on_end()
        if not self.alive:
            log = Path(f"{base}.log")
            text = log.read_text(errors="replace")[-500:].strip() if log.exists() else ""
            raise CellFailed(f"bubblewrap did not start the sandbox: {text or 'no message'}")
        self._holder.tune_network(self.name)

    async def run(self, command: str, cwd: str, env: Mapping[str, str], timeout: float | None) -> Finished:
        """Run one bash command line to its end.

        Past `timeout` seconds, or past the limit on printed bytes, its process group is killed; code 124 or 137 and
        `why` say so. Cancelling kills it as well.
        """
        self._last += 1
        number = self._last
        base = str(self._control / str(number))
        running = _Running(asyncio.Event())
        self._running[number] = running
        try:
            Path(f"{base}.sh").write_text(request_script(number, command, cwd, env), errors="surrogateescape")
            for stream in ("out", "err"):
                _make_pipe(Path(f"{base}.{stream}"))
                fd = os.open(f"{base}.{stream}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                running.outputs.append(Capture(fd, self._limits.output_kb << 10, lambda: self._on_output(running)))
            self._tell(f"run {number}")
            try:
                async with asyncio.timeout(timeout):
                    await running.done.wait()
            except TimeoutError:
                running.code, running.why = 124, f"killed after {timeout:g} s"
            if running.code is None and not running.why:
                # Killed together with the shell that reports. If process 1 died too, know it before the next command.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_DEATH_NOTICE_S):
                        await self._ended.wait()
            for output in running.outputs:
                output.channel.drain(_LAST_BYTES)
            stdout, stderr = (output.text() for output in running.outputs)
            return Finished(_KILLED if running.code is None else running.code, stdout, stderr, running.why)
        finally:
            self._running.pop(number, None)
            self._release(number, running)
            for ending in ("out", "err", "sh"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{base}.{ending}")

    def close(self) -> None:
        """Let go of the pipes and of commands that still run; the holder ends the processes."""
        self._on_end()
        for output in self._background:
            output.channel.close()
        self._background.clear()
        if self._status is not None:
            self._status.channel.close()
        if self._input >= 0:
            os.close(self._input)
            self._input = -1

    def _release(self, number: int, running: _Running) -> None:
        ended = running.code is not None and not running.why
        if not ended and self.alive:
            self._tell(f"kill {number}")
        for output in running.outputs:
            # What the command left in the background may print on; closing its pipe would end it.
            if ended and self.alive and not output.channel.closed:
                output.discard()
                self._background.append(output)
            else:
                output.channel.close()
        while len(self._background) > _BACKGROUND_PIPES:
            self._background.pop(0).channel.close()

    def _tell(self, line: str) -> None:
        try:
            os.write(self._input, f"{line}\n".encode())
        except BlockingIOError:
            # Process 1 has stopped reading: the agent froze it.
            self._on_end()

    def _on_status(self, line: str) -> None:
        if line == "ready":
            self._started.set()
            return
        number, _, code = line.partition(" ")
        if not (number.isdigit() and code.isdigit() and len(line) <= 16):
            return
        running = self._running.get(int(number))
        if running is not None and not running.done.is_set():
            running.code = min(int(code), 255)
            running.done.set()

    def _on_output(self, running: _Running) -> None:
        if sum(output.total for output in running.outputs) > self._limits.flood_mb << 20:
            for output in running.outputs:
                output.channel.close()
            if not running.done.is_set():
                running.why = f"killed after printing more than {self._limits.flood_mb} MiB"
                running.done.set()
        elif len(running.outputs) == 2 and all(output.channel.closed for output in running.outputs):
            # Both ends are closed only after the status was written, unless the writing shell was killed too.
            if self._status is not None:
                self._status.channel.drain(_LAST_BYTES)
            running.done.set()

    def _on_end(self) -> None:
        self.alive = False
        self._started.set()
        self._ended.set()
        for running in self._running.values():
            if not running.done.is_set():
                running.why = "the sandbox's first process ended"
                running.done.set()


def _make_pipe(path: Path) -> None:
    os.mkfifo(path)
    # The trial's user writes it; the folder around it is closed to everybody else.
    path.chmod(0o666)

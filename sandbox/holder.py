"""The holder: the process that keeps a trial's files while its sandboxes come and go.

    server --stdin/stdout-- holder (user, mount and process namespace; a tmpfs of limited size)
                               |
                               +-- bwrap: the agent's sandbox      (killed by restart)
                               +-- bwrap: the verifier's sandbox

It is a shell loop, process 1 of its process namespace, and only ever runs our lines. It ends when its standard input
is closed, by us or because the server died, and the kernel then ends all that is in the trial: processes, mounts,
files. So nothing can be left over but an empty folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from pathlib import Path

from sandbox.bubblewrap import CLEAN_ENV, holder_argv
from sandbox.channel import Lines
from sandbox.limits import Limits
from sandbox.processors import narrowed
from sandbox.trial_dir import TrialDir

START_TIMEOUT_S = 20.0
_GONE_TIMEOUT_S = 10.0

# $1 mount point, $2 bytes, $3 inodes, $4 control folder, $5 mount point of the terminals, $6 how many; the rest: the
# bwrap command, whose child's process id in this namespace comes by descriptor 5 and whose system call filter goes by
# descriptor 6. No further user namespace may be made: within one, a process could mount a tmpfs without a size. A
# process in the trial is the first that the kernel ends when memory is short. Terminals are counted for the whole
# machine, and so is the memory of TCP, which grows with what waits to be read.
SCRIPT = r"""
root=$1 bytes=$2 inodes=$3 control=$4 pts=$5 terminals=$6
shift 6
mount -n -i -t tmpfs -o "size=$bytes,nr_inodes=$inodes,mode=0755" tmpfs "$root" || exit 71
mount -n -i -t devpts -o "newinstance,ptmxmode=0666,mode=0620,max=$terminals" devpts "$pts" || exit 74
echo 0 >/proc/sys/user/max_user_namespaces || exit 72
echo 1000 >/proc/self/oom_score_adj || exit 73
child_of() {
    child=
    while read -r key value; do
        case $key in '"child-pid":') child=${value%%[!0-9]*} ;; esac
    done <"$control/$1.info"
}
echo ready
while read -r verb n; do
    case $verb in
    start)
        "$@" <"$control/$n.in" >"$control/$n.status" 2>"$control/$n.log" 5>"$control/$n.info" \
            6<"$control/seccomp" &
        bwrap=$!
        ;;
    tune)
        child_of "$n"
        nsenter --net="/proc/$child/ns/net" tee /proc/sys/net/ipv4/tcp_rmem /proc/sys/net/ipv4/tcp_wmem \
            >/dev/null 2>>"$control/$n.log" <<END
4096 16384 131072
END
        ;;
    stop)
        child_of "$n"
        kill -KILL "${child:-$bwrap}" 2>/dev/null
        wait "$bwrap"
        echo "stopped $n"
        ;;
    grow)
        mount -n -i -t tmpfs -o "remount,$n" tmpfs "$root" && echo "grown $n"
        ;;
    esac
done
"""


class HolderFailed(RuntimeError):
    """The holder did not come up or did not do what it was told."""


class Holder:
    """One holder process. `await start()` before anything else, `await close()` at the end."""

    def __init__(self, trial: TrialDir, limits: Limits, bwrap: list[str]) -> None:
        self._trial = trial
        self._limits = limits
        self._bwrap = bwrap
        self._process: subprocess.Popen[bytes] | None = None
        self._lines: Lines | None = None
        self._exited: asyncio.Event = asyncio.Event()
        self._answers: dict[str, asyncio.Future[None]] = {}
        self._pidfd = -1

    @property
    def pid(self) -> int:
        if self._process is None:
            raise HolderFailed("the sandbox is not running")
        return self._process.pid

    async def start(self) -> None:
        """Start the process and wait until the tmpfs is mounted.

        Raises:
            HolderFailed: with what the programs said.
        """
        size = str(self._limits.disk_mb << 20)
        trial, limits = self._trial, self._limits
        arguments = [str(trial.root), size, str(limits.inodes), str(trial.control)]
        arguments += [str(trial.terminals), str(limits.terminals), *self._bwrap]
        # No await between the process and what ends it: a cancellation cannot come in between.
        with open(self._trial.control / "holder.log", "wb") as log, narrowed(self._limits.cpus):
            self._process = subprocess.Popen(
                [*self._trial.identity.prefix(), *holder_argv(SCRIPT, arguments)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd="/",
                env=CLEAN_ENV,
                start_new_session=True,
                bufsize=0,
            )
        self._pidfd = os.pidfd_open(self._process.pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._on_exit)
        assert self._process.stdout is not None
        stdout = os.dup(self._process.stdout.fileno())
        self._process.stdout.close()
        os.set_blocking(stdout, False)
        self._lines = Lines(stdout, self._on_line, self._on_end, budget=1 << 20)
        ready = self._expect("ready")
        self._trial.write_owner(self._process.pid)
        await self._await(ready, START_TIMEOUT_S, "start")

    def family(self) -> list[int]:
        """The holder's own two processes, as this machine numbers them: unshare and its shell."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [self.pid, *(int(child) for child in children)]

    def start_sandbox(self, name: str) -> None:
        """Start bwrap with the pipes `<name>.in` and `<name>.status` of the control folder; does not wait for it."""
        self._tell(f"start {name}")

    def tune_network(self, name: str) -> None:
        """Give the connections of a sandbox that has started small buffers; does not wait for it."""
        self._tell(f"tune {name}")

    async def stop_sandbox(self, name: str) -> None:
        """Kill everything in a sandbox that was started; returns when its last process is gone."""
        self._tell(f"stop {name}")
        stopped = self._expect(f"stopped {name}")
        await self._await(stopped, _GONE_TIMEOUT_S, "end the sandbox's processes")

    async def grow(self, size: int, inodes: int) -> None:
        """Let the trial's tmpfs hold `size` bytes and `inodes` files."""
        options = f"size={size},nr_inodes={inodes}"
        self._tell(f"grow {options}")
        grown = self._expect(f"grown {options}")
        await self._await(grown, _GONE_TIMEOUT_S, "make room for the verifier")

    async def close(self) -> None:
        """End the holder and with it everything in the trial. Safe to call at any time and more than once."""
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            if self._pidfd < 0 and not self._exited.is_set():
                # Out of descriptors in the middle of start(): there is no pidfd to wait on.
                process.kill()
                process.wait()
                self._exited.set()
            async with asyncio.timeout(_GONE_TIMEOUT_S):
                await self._exited.wait()
        except TimeoutError:
            process.kill()
            await self._exited.wait()
        finally:
            if self._lines is not None:
                self._lines.channel.close()

    def log_text(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            return (self._trial.control / "holder.log").read_text(errors="replace").strip()[-500:]
        return ""

    def _tell(self, line: str) -> None:
        if self._process is None or self._process.stdin is None or self._process.stdin.closed:
            raise HolderFailed("the sandbox is not running")
        try:
            self._process.stdin.write(f"{line}\n".encode())
        except BrokenPipeError:
            raise HolderFailed(f"the sandbox's holder process is gone: {self.log_text()}") from None

    def _expect(self, line: str) -> asyncio.Future[None]:
        future = asyncio.get_running_loop().create_future()
        self._answers[line] = future
        return future

    async def _await(self, future: asyncio.Future[None], seconds: float, what: str) -> None:
        try:
            async with asyncio.timeout(seconds):
                await future
        except TimeoutError:
            raise HolderFailed(f"the sandbox could not {what} within {seconds:g} s: {self.log_text()}") from None

    def _on_line(self, line: str) -> None:
        future = self._answers.pop(line, None)
        if future is not None and not future.done():
            future.set_result(None)

    def _on_end(self) -> None:
        for future in self._answers.values():
            if not future.done():
                future.set_exception(HolderFailed(f"the sandbox's holder process ended: {self.log_text()}"))
        self._answers.clear()

    def _on_exit(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._pidfd = -1
        if self._process is not None:
            self._process.wait()
        self._exited.set()

"""Can this machine run the sandbox? Found out by running one."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import sys
import threading
from pathlib import Path

from sandbox.bubblewrap import BASH, CLEAN_ENV, SandboxUnavailable
from sandbox.cell import CellFailed
from sandbox.holder import HolderFailed
from sandbox.limits import Limits
from sandbox.trial import Sandbox

_WAY_OUT = (
    "The sandbox needs user namespaces: on a plain machine check "
    "`sysctl user.max_user_namespaces kernel.unprivileged_userns_clone kernel.apparmor_restrict_unprivileged_userns` "
    "(wanted: a large number, 1, 0; a name that is missing is fine); in a Docker container start it with "
    "`--security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined "
    "--cap-add SYS_PTRACE`, or use another environment (docker, daytona, e2b, modal). "
    "On a machine that holds nothing of value, agent_server.py --unsafe-no-sandbox runs trials without isolation."
)


def preflight(base_dir: Path | str | None = None) -> None:
    """Start a sandbox, run `true` in it and end it: about 0.1 s.

    Raises:
        SandboxUnavailable: with the reason and the way out.
    """
    if sys.platform != "linux":
        raise SandboxUnavailable(f"the local sandbox needs Linux, this is {sys.platform}; use another environment")
    programs = ["unshare", "nsenter", "mount", "tee", *(["chroot"] if os.geteuid() == 0 else [])]
    missing = [name for name in programs if shutil.which(name, path=CLEAN_ENV["PATH"]) is None]
    if missing:
        raise SandboxUnavailable(f"programs {missing} are missing; install the packages util-linux and coreutils")
    if not os.path.exists(BASH):
        raise SandboxUnavailable(f"{BASH} is missing; install the package bash")
    failure: list[BaseException] = []

    def attempt() -> None:
        try:
            asyncio.run(_try(Path(base_dir) if base_dir else None))
        except (SandboxUnavailable, HolderFailed, CellFailed, OSError) as error:
            failure.append(error)

    # A thread of its own: the caller may already be inside an event loop.
    thread = threading.Thread(target=attempt, name="sandbox-preflight")
    thread.start()
    thread.join()
    if failure:
        if isinstance(failure[0], SandboxUnavailable):
            raise failure[0]
        # Only now: a process that may raise its hard limits runs sandboxes all the same.
        if low := _hard_limits_below(Limits()):
            raise SandboxUnavailable(
                f"a trial's limits are above this process's hard limits: {'; '.join(low)}; raise these before the start"
            ) from failure[0]
        raise SandboxUnavailable(f"{failure[0]}. {_WAY_OUT}") from failure[0]


def _hard_limits_below(limits: Limits) -> list[str]:
    """What the sandbox sets with `ulimit` and this process may not, in the shell's units."""
    kib = 1 << 10
    wanted = (
        ("-f", resource.RLIMIT_FSIZE, limits.file_mb * kib, kib),
        ("-n", resource.RLIMIT_NOFILE, limits.open_files, 1),
        ("-u", resource.RLIMIT_NPROC, limits.processes, 1),
        ("-d", resource.RLIMIT_DATA, limits.memory_mb * kib, kib),
        ("-v", resource.RLIMIT_AS, limits.memory_mb * 4 * kib, kib),
    )
    hard = [(name, resource.getrlimit(kind)[1], need, unit) for name, kind, need, unit in wanted]
    return [
        f"`ulimit -H {name}` is {has // unit}, {need} or more is needed"
        for name, has, need, unit in hard
        if has != resource.RLIM_INFINITY and has < need * unit
    ]


async def _try(base_dir: Path | None) -> None:
    sandbox = Sandbox(base_dir=base_dir)
    await sandbox.start()
    try:
        ended = await sandbox.run("true", timeout=10)
    finally:
        await sandbox.close()
    if ended.return_code != 0:
        raise CellFailed(f"`true` ended with {ended.return_code} {ended.why} {ended.stderr}")

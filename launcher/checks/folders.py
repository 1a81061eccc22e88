"""Folders: there, writable, with room, and on a disk where that matters."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from launcher.preflight import Finding, failure, first_three, ok, warning

GIB = 2**30
REPOSITORY_FILES = ("swe_agent_function.py", "generate.py")
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})


def check_paths(paths: Mapping[str, Path]) -> Finding:
    """`paths` by the option that names them; files and folders that must exist."""
    missing = [f"{option} {path}" for option, path in paths.items() if not os.path.exists(path)]
    if missing:
        verb = "does" if len(missing) == 1 else "do"
        return failure("paths", f"{first_three(missing)} {verb} not exist", "install it there, or name the right path")
    return ok("paths", f"{len(paths)} are there")


def check_repository(folder: Path) -> Finding:
    """Miles imports its hooks from this folder in every worker."""
    name = "this repository"
    missing = [file for file in REPOSITORY_FILES if not os.path.isfile(folder / file)]
    if missing:
        return failure(
            name,
            f"{folder} lacks {' and '.join(missing)}, which Miles imports in every worker",
            "put this repository on storage that all nodes see, or at the same path on each",
        )
    return ok(name, f"{folder} is there")


def check_writable(name: str, folder: Path, option: str) -> Finding:
    """Tried with a real file in the nearest folder that exists: permissions alone do not tell of read-only mounts."""
    try:
        existing = _nearest_there(folder)
        longest = os.pathconf(existing, "PC_NAME_MAX")
        if any(len(os.fsencode(part)) > longest for part in folder.relative_to(existing).parts):
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        return failure(name, f"{folder} cannot be written ({error.strerror})", f"name another folder with {option}")
    return ok(name, f"{folder} can be written")


def _nearest_there(folder: Path) -> Path:
    """The nearest folder that exists; raises OSError where something else is in the way, a dangling link too."""
    for path in (folder, *folder.parents):
        try:
            path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        if os.path.isdir(path):
            return path
        what = "no folder" if os.path.exists(path) else "a link that leads nowhere"
        raise OSError(errno.ENOTDIR, f"{path} is {what}", str(path))
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))


def check_disk(folder: Path, need: int | None) -> Finding:
    """`need` in bytes, None where it cannot be told."""
    name = "disk space"
    free = shutil.disk_usage(nearest_existing(folder)).free
    if need is None:
        return warning(
            name, f"size of the checkpoints unknown, {free / GIB:.1f} GiB free", "watch it during the first save"
        )
    sizes = f"{need / GIB:.1f} GiB needed, {free / GIB:.1f} GiB free at {folder}"
    if free < need:
        return failure(name, sizes, "free some, raise --save-interval, or name another --save-dir")
    return ok(name, sizes)


def check_offload(folder: Path, need: int, option: str = "--offload-train-disk-dir") -> Finding:
    """`need` in bytes on one node. A folder in memory would give back with one hand what it takes with the other."""
    name = "train offload"
    kind = file_system(folder)
    if kind in _IN_MEMORY:
        return failure(name, f"{folder} is on {kind}, which is memory", f"name a folder on a local disk with {option}")
    writable = check_writable(name, folder, option)
    if writable.way_out:
        return writable
    free = shutil.disk_usage(nearest_existing(folder)).free
    sizes = f"{need / GIB:.1f} GiB needed, {free / GIB:.1f} GiB free at {folder} ({kind})"
    if free < need:
        return failure(name, sizes, f"free some, or name a folder on a larger disk with {option}")
    return ok(name, sizes)


def nearest_existing(folder: Path) -> Path:
    return next((path for path in (folder, *folder.parents) if os.path.isdir(path)), Path("/"))


def file_system(folder: Path, mounts: Path = Path("/proc/mounts")) -> str:
    """Its kind as the kernel names it (ext4, tmpfs, nfs4), of the deepest mount above `folder`."""
    path = nearest_existing(folder).resolve()
    depth, kind = -1, "unknown"
    for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines():
        _, point, found, *_ = line.split(" ")
        mounted = Path(point.encode().decode("unicode_escape"))
        # A later mount on the same point hides an earlier one.
        if path.is_relative_to(mounted) and len(mounted.parts) >= depth:
            depth, kind = len(mounted.parts), found
    return kind

"""Access to a trial's files from outside.

Every path is resolved by the kernel with the trial's root as `/` (openat2, RESOLVE_IN_ROOT), every name below it is
opened without following links, and everything runs with the rights of the trial's user. So a link, a pipe or a
device that the agent planted cannot make the server read or write anything else.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import stat
from pathlib import Path, PurePosixPath

from sandbox.identity import Identity

_LIBC = ctypes.CDLL(None, use_errno=True)
_SYS_OPENAT2 = 437  # the same number on every architecture
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_IN_ROOT = 0x10
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_DEEPEST = 64  # folders below each other in one transfer; each holds a descriptor
_COPY_CHUNK = 1 << 20
# a path too long, a name of bytes that the file system refuses, a folder of ours where a file was to be
_UNHOLDABLE = (errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL, errno.EISDIR)


class TransferRefused(RuntimeError):
    """A transfer across the sandbox's border would break a limit."""


class _OpenHow(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


class RootFs:
    """The files of one trial. `fd` is an open descriptor of its root folder, owned by this object."""

    def __init__(self, fd: int, identity: Identity) -> None:
        self.fd = fd
        self._identity = identity

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _open(self, path: PurePosixPath | str, flags: int) -> int:
        how = _OpenHow(flags | os.O_CLOEXEC, 0, _RESOLVE_IN_ROOT | _RESOLVE_NO_MAGICLINKS)
        fd: int = _LIBC.syscall(_SYS_OPENAT2, self.fd, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
        if fd < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
        return fd

    def _open_dir(self, path: PurePosixPath) -> int:
        """Open a folder, made with its parents where it is missing."""
        try:
            return self._open(path, _DIRECTORY)
        except FileNotFoundError:
            if path.parent == path:
                raise
        parent = self._open_dir(path.parent)
        try:
            os.mkdir(path.name, 0o755, dir_fd=parent)
        finally:
            os.close(parent)
        return self._open(path, _DIRECTORY)

    def is_dir(self, path: str) -> bool:
        return stat.S_ISDIR(self._mode(path))

    def is_file(self, path: str) -> bool:
        return stat.S_ISREG(self._mode(path))

    def _mode(self, path: str) -> int:
        """The mode of what `path` leads to; 0 when it leads nowhere."""
        with self._identity.file_access():
            try:
                fd = self._open(path, os.O_PATH)
            except OSError:
                return 0
            try:
                return os.fstat(fd).st_mode
            finally:
                os.close(fd)

    def make_dir(self, path: str, mode: int | None = None) -> None:
        """Make a folder and its parents; `mode` is set on the folder itself even where it exists."""
        with self._identity.file_access():
            fd = self._open_dir(PurePosixPath(path))
            try:
                if mode is not None:
                    os.fchmod(fd, mode)
            finally:
                os.close(fd)

    def remove_file(self, path: str) -> None:
        """Remove a file or link, if it is there. Raises OSError for a folder."""
        where = PurePosixPath(path)
        with self._identity.file_access():
            try:
                parent = self._open(where.parent, _DIRECTORY)
            except FileNotFoundError:
                return
            try:
                _remove_file(where.name, parent)
            finally:
                os.close(parent)

    def make_executable(self, path: str) -> None:
        """Add the execute permission for everybody to a file."""
        with self._identity.file_access():
            fd = self._open(path, os.O_RDONLY | os.O_NONBLOCK)
            try:
                os.fchmod(fd, stat.S_IMODE(os.fstat(fd).st_mode) | 0o111)
            finally:
                os.close(fd)

    # ---- host -> trial ------------------------------------------------------

    def put_file(self, source: Path, target: str, mode: int | None = None) -> None:
        """Copy one file; what is at `target` is replaced, never written through. `mode`: default the source's."""
        where = PurePosixPath(target)
        with self._identity.file_access():
            parent = self._open_dir(where.parent)
        try:
            self._put(source, parent, where.name, mode)
        finally:
            os.close(parent)

    def put_tree(self, source: Path, target: str, mode: int | None = None) -> None:
        """Copy the content of a folder into `target`, which is made where it is missing. Links stay links.

        Below it a file in the place of a folder is replaced, and a folder in the place of a file.
        """
        with self._identity.file_access():
            folder = self._open_dir(PurePosixPath(target))
        try:
            self._put_entries(source, folder, mode, 1)
        finally:
            os.close(folder)

    def _put_entries(self, source: Path, folder: int, mode: int | None, depth: int) -> None:
        if depth > _DEEPEST:
            raise TransferRefused(f"{source} lies {depth} folders deep; at most {_DEEPEST} are copied")
        with os.scandir(source) as entries:
            for entry in entries:
                if entry.is_symlink():
                    leads_to = os.readlink(entry.path)
                    with self._identity.file_access():
                        _remove(entry.name, folder)
                        os.symlink(leads_to, entry.name, dir_fd=folder)
                elif entry.is_dir():
                    below = self._enter(folder, entry.name)
                    folder_mode = stat.S_IMODE(entry.stat().st_mode) & 0o777 | 0o700
                    try:
                        self._put_entries(Path(entry.path), below, mode, depth + 1)
                        with self._identity.file_access():
                            os.fchmod(below, folder_mode)
                    finally:
                        os.close(below)
                elif entry.is_file():
                    self._put(Path(entry.path), folder, entry.name, mode)
                else:
                    raise TransferRefused(f"{entry.path} is neither file, folder nor link; remove it from the task")

    def _enter(self, folder: int, name: str) -> int:
        with self._identity.file_access():
            for _ in range(2):
                try:
                    os.mkdir(name, 0o755, dir_fd=folder)
                except FileExistsError:
                    pass
                try:
                    return os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
                except OSError as error:
                    if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                        raise
                    os.unlink(name, dir_fd=folder)
        raise TransferRefused(f"{name!r} inside the sandbox changes while files are copied to it")

    def _put(self, source: Path, folder: int, name: str, mode: int | None) -> None:
        with open(source, "rb") as file:
            wanted = stat.S_IMODE(os.fstat(file.fileno()).st_mode) if mode is None else mode
            with self._identity.file_access():
                _remove(name, folder)
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                fd = os.open(name, flags, 0o600, dir_fd=folder)
            try:
                while data := file.read(_COPY_CHUNK):
                    _write_all(fd, data)
                os.fchmod(fd, wanted & 0o777)
            finally:
                os.close(fd)

    # ---- trial -> host ------------------------------------------------------

    def get_file(self, source: str, target: Path, budget: int) -> None:
        """Copy one regular file of at most `budget` bytes to the host; an existing target is replaced.

        Raises:
            FileNotFoundError: there is no such regular file.
            TransferRefused: it is larger than the budget.
        """
        fd = self._open_regular(source)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with _fresh_file(target) as file:
                _copy_out(fd, file.fileno(), budget, source)
        except TransferRefused:
            target.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)

    def _open_regular(self, source: str) -> int:
        with self._identity.file_access():
            try:
                # O_NONBLOCK: opening a pipe that the agent put there must not wait for its other end.
                fd = self._open(source, os.O_RDONLY | os.O_NONBLOCK)
            except OSError as error:
                raise FileNotFoundError(f"{source} cannot be read inside the sandbox: {error.strerror}") from error
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise FileNotFoundError(f"{source} inside the sandbox is not a regular file")
        return fd

    def get_tree(self, source: str, target: Path, budget: int) -> list[str]:
        """Copy the folders and regular files below `source` to the host, at most `budget` bytes in all.

        Nothing that the agent can put there makes it fail: the reward file beside a flooded log must arrive.

        Returns: the first 20 of the paths that were left out: links, pipes, sockets, devices, unreadable files, files
        larger than what the budget still allowed, what lies more than 64 folders deep, and paths or names that this
        machine cannot hold.
        Raises:
            FileNotFoundError: there is no such folder.
            OSError: this machine's disk is full or cannot be written.
        """
        with self._identity.file_access():
            try:
                folder = self._open(source, _DIRECTORY)
            except OSError as error:
                raise FileNotFoundError(f"{source} is no folder inside the sandbox: {error.strerror}") from error
        left_out: list[str] = []
        try:
            target.mkdir(parents=True, exist_ok=True)
            self._get_entries(folder, source, target, [budget], left_out, 1)
        finally:
            os.close(folder)
        return left_out

    def _get_entries(
        self, folder: int, shown: str, target: Path, budget: list[int], left_out: list[str], depth: int
    ) -> None:
        if depth > _DEEPEST:
            _note(left_out, shown)
            return
        for name in os.listdir(folder):
            path = f"{shown}/{name}"
            with self._identity.file_access():
                try:
                    mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
                    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
                        raise OSError(errno.EINVAL, "not a regular file")
                    fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
                except OSError:
                    _note(left_out, path)
                    continue
            try:
                opened = os.fstat(fd).st_mode
                if stat.S_ISDIR(opened):
                    _make_real_dir(target / name)
                    self._get_entries(fd, path, target / name, budget, left_out, depth + 1)
                elif stat.S_ISREG(opened) and os.fstat(fd).st_size <= budget[0]:
                    with _fresh_file(target / name) as file:
                        budget[0] -= _copy_out(fd, file.fileno(), budget[0], path)
                else:
                    _note(left_out, path)
            except TransferRefused:
                # It grew while it was copied.
                (target / name).unlink()
                budget[0] = 0
                _note(left_out, path)
            except OSError as error:
                if error.errno not in _UNHOLDABLE:
                    raise
                _note(left_out, path)
            finally:
                os.close(fd)

    # ---- between the phases ---------------------------------------------------

    def empty_dir(self, path: str, trash: int, label: str, mode: int | None = None) -> None:
        """Put a fresh empty folder at `path`. What was there, link or folder, moves to the folder `trash` whole:
        a tree that the agent made deep or wide on purpose costs one rename."""
        where = PurePosixPath(path)
        with self._identity.file_access():
            parent = self._open_dir(where.parent)
            try:
                discard(parent, where.name, trash, label)
                os.mkdir(where.name, 0o755, dir_fd=parent)
                if mode is not None:
                    os.chmod(where.name, mode, dir_fd=parent)
            finally:
                os.close(parent)


def source_text(path: str) -> str:
    """A path that the agent may have made long, short enough for a message."""
    return path if len(path) <= 80 else f"{path[:80]}..."


def discard(parent: int, name: str, trash: int, label: str) -> None:
    """Move an entry, if it is there, into the folder `trash`; `label` must be unused in it."""
    try:
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        # A folder that changes its parent must be writable itself.
        os.chmod(name, 0o700, dir_fd=parent)
    os.rename(name, label, src_dir_fd=parent, dst_dir_fd=trash)


def _note(left_out: list[str], path: str) -> None:
    if len(left_out) < 20:
        left_out.append(source_text(path))


def _remove_file(name: str, folder: int) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass


def _remove(name: str, folder: int) -> None:
    """Also a folder with all that is in it: what an agent made a file may be a folder where it is judged."""
    try:
        _remove_file(name, folder)
    except IsADirectoryError:
        shutil.rmtree(name, dir_fd=folder)


def _make_real_dir(path: Path) -> None:
    try:
        path.mkdir()
    except FileExistsError:
        if path.is_symlink() or not path.is_dir():
            # Of an earlier download, in which the agent had a file of this name.
            path.unlink()
            path.mkdir()


class _fresh_file:
    """A new host file at `path`; an old one is removed first, so that no link of it is followed."""

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)

    def fileno(self) -> int:
        return self._fd

    def __enter__(self) -> _fresh_file:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def _copy_out(source: int, target: int, budget: int, shown: str) -> int:
    copied = 0
    while data := os.read(source, min(_COPY_CHUNK, budget - copied + 1)):
        copied += len(data)
        if copied > budget:
            raise TransferRefused(
                f"{source_text(shown)}: more than the {budget} bytes that one download may still bring to the host; "
                "raise the sandbox limit download_mb"
            )
        _write_all(target, data)
    return copied


def _write_all(target: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]

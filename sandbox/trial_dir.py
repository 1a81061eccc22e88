"""The folder of one trial on this machine, and whose it is."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from sandbox.bubblewrap import SandboxUnavailable
from sandbox.identity import Identity

OWNER_FILE = "owner.json"
_FIRST_UID = 200_000
_UIDS = 50_000
_next_uid = itertools.count(os.getpid() % _UIDS)


def default_base_dir() -> Path:
    """One folder per user: on /dev/shm, where a trial's dozen small files cost no disk access, else in /tmp."""
    shm = Path("/dev/shm")
    usable = os.access(shm, os.W_OK | os.X_OK) and not os.statvfs(shm).f_flag & os.ST_NOEXEC
    return (shm if usable else Path(tempfile.gettempdir())) / f"agent-sandboxes-{os.geteuid()}"


def prepare_base_dir(base_dir: Path) -> None:
    """Make the base folder; only its owner may list it, the trials' users may pass through.

    Raises:
        SandboxUnavailable: it is a link, or not ours, or the trials' users cannot reach it.
    """
    base_dir.mkdir(mode=0o711, parents=True, exist_ok=True)
    status = base_dir.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise SandboxUnavailable(
            f"{base_dir} is not a folder that belongs to user {os.geteuid()}; remove it, or give another base_dir"
        )
    base_dir.chmod(0o711)
    if os.geteuid() == 0:
        closed = [str(parent) for parent in base_dir.resolve().parents if not parent.stat().st_mode & stat.S_IXOTH]
        if closed:
            raise SandboxUnavailable(
                f"{base_dir} lies below {closed[0]}, which other users cannot enter, and each trial runs as a user "
                "of its own; give a base_dir elsewhere"
            )


def process_start(pid: int) -> int | None:
    """When a process was started, in clock ticks since boot; None when it does not exist or has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The program name stands in parentheses and may itself hold blanks and parentheses.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else int(fields[19])


@dataclass(frozen=True)
class TrialDir:
    """
    root:      where the trial's tmpfs is mounted, in the trial's own mount namespace only (always empty here)
    terminals: likewise its pseudo terminals
    control:   pipes and scripts between server and sandbox
    """

    path: Path
    identity: Identity

    @property
    def root(self) -> Path:
        return self.path / "root"

    @property
    def terminals(self) -> Path:
        return self.path / "terminals"

    @property
    def control(self) -> Path:
        return self.path / "control"

    @classmethod
    def claim(cls, base_dir: Path) -> TrialDir:
        """A new folder below `base_dir`; for root also a user id that no other trial of this base folder has.

        Raises:
            SandboxUnavailable: all user ids are taken.
        """
        if os.geteuid() == 0:
            trial = cls._claim_uid(base_dir)
        else:
            trial = cls(Path(tempfile.mkdtemp(prefix="trial-", dir=base_dir)), Identity(None))
        try:
            trial.write_owner(None)
            for folder in (trial.root, trial.terminals, trial.control):
                folder.mkdir()
                trial.identity.own(folder)
            trial.identity.own(trial.path)
        except BaseException:
            trial.remove()
            raise
        return trial

    @classmethod
    def _claim_uid(cls, base_dir: Path) -> TrialDir:
        for _ in range(_UIDS):
            uid = _FIRST_UID + next(_next_uid) % _UIDS
            path = base_dir / f"trial-{uid}"
            try:
                path.mkdir(mode=0o700)
            except FileExistsError:
                continue
            return cls(path, Identity(uid))
        raise SandboxUnavailable(
            f"all {_UIDS} user ids are taken below {base_dir}; restart the agent server, which removes what killed "
            "ones left there"
        )

    def write_owner(self, holder: int | None) -> None:
        """Say who may still need this folder: this process and, once it runs, the trial's holder process."""
        pids = [os.getpid()] if holder is None else [os.getpid(), holder]
        text = json.dumps([{"pid": pid, "start": process_start(pid)} for pid in pids])
        # Not synced to disk: after a crash of the machine no process is left that it could name.
        partial = self.path / f"{OWNER_FILE}.tmp"
        partial.write_text(text)
        partial.rename(self.path / OWNER_FILE)

    def remove(self) -> None:
        """Remove the folder. Only what we wrote lies in it: the trial's own files are in its tmpfs."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self.path.exists():
            shutil.rmtree(self.path)

"""What a save folder holds, where a run goes on, and that one run at a time has it."""

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from launcher.errors import NothingLeftError, OptionsError, PreflightError
from launcher.options import CommonOptions
from local_engine.manifest import TRACKER

_DIGITS = 9  # of a rollout id
_ITERATION = re.compile(r"iter_\d+\Z")


@dataclass(frozen=True)
class StartPoint:
    """Folder to load from (None: from the beginning) and rollouts done; the tracker is the 0-based id of the last."""

    load_dir: Path | None
    done: int
    to_go: int

    @property
    def sentence(self) -> str:
        return f"{self.done} done, {self.to_go} to go"


def validate_folder(option: str, folder: Path) -> None:
    """Raises OptionsError for what is no folder and can become none: a file on its way, a loop, a name too long."""
    for path in (folder, *folder.parents):
        try:
            mode = path.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            if path.is_symlink():
                raise OptionsError(f"{option} {folder}: {path} is a link to nothing; name a folder") from None
            continue
        except OSError as error:
            raise OptionsError(f"{option} {str(folder)[:200]}: {error.strerror}; name another folder") from None
        if not stat.S_ISDIR(mode):
            raise OptionsError(f"{option} {folder}: {path} is a file; name a folder")
        return


def is_used(folder: Path) -> bool:
    """A tracker or a checkpoint makes it so; `launch/`, `traces/` and generated files of a failed start do not."""
    if not folder.is_dir():
        return False
    return any(entry.name == TRACKER or _ITERATION.match(entry.name) for entry in folder.iterdir())


def read_tracker(option: str, folder: Path) -> int:
    """0-based id of the last saved rollout. Raises OptionsError when it does not name one."""
    tracker = folder / TRACKER
    validate_folder(option, folder)
    try:
        text = tracker.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        raise OptionsError(
            f"{option} {folder} has no {TRACKER}, so there is no checkpoint to go on from (the run would start at "
            "rollout 0 unnoticed); name the folder that holds it, or leave it out"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise OptionsError(
            f"{option}: {tracker} cannot be read ({error}); restore it, or start in a new folder"
        ) from None
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        raise OptionsError(
            f"{option}: {tracker} says {text[:40]!r}, which is no rollout id; a 'release' checkpoint holds no "
            "optimizer and no position: start a new run from it with --hf-checkpoint"
        )
    return int(text)


def find_start_point(
    save_dir: Path, load_dir: Path | None, resume: bool, num_rollout: int, *, outcome: Path | None = None
) -> StartPoint:
    """Where a run starts; `outcome` is what the end of one writes, still to be written in its own folder if missing.

    Raises OptionsError for a folder that cannot be used so, NothingLeftError when every rollout is done.
    """
    validate_folder("--save-dir", save_dir)
    source = load_dir or (save_dir if resume else None)
    same = source is not None and source.resolve() == save_dir.resolve()
    if is_used(save_dir) and not (resume and same):
        way_out = "add --resume to go on in it, or name a new --save-dir"
        if source is not None and not same:
            way_out = f"its checkpoints would mix with those of {source}: name a new --save-dir"
        raise OptionsError(f"--save-dir {save_dir} already holds checkpoints; {way_out}")
    if source is None:
        return StartPoint(None, 0, num_rollout)
    option = "--load-dir" if load_dir is not None else "--resume with --save-dir"
    done = read_tracker(option, source) + 1
    if done >= num_rollout and same and outcome is not None and not outcome.exists():
        return StartPoint(source, done, 0)
    if done >= num_rollout:
        raise NothingLeftError(
            f"nothing left to do: {done} rollouts are done in {source} and --num-rollout is {num_rollout}; "
            f"raise --num-rollout above {done} to go on"
        )
    return StartPoint(source, done, num_rollout - done)


def tracked_start(options: CommonOptions) -> StartPoint:
    """By --save-dir, --load-dir and --resume, where checkpoints have a tracker. Raises as `find_start_point`."""
    files = options.files
    load_dir = Path(files.load_dir) if files.load_dir else None
    return find_start_point(Path(str(files.save_dir)), load_dir, files.resume, options.rollout.num_rollout)


@contextmanager
def held(save_dir: Path) -> Generator[None]:
    """Keep other runs on this machine out of a save folder; the kernel lets go of it when the process ends.

    Raises OptionsError while another process holds it.
    """
    try:
        (save_dir / "launch").mkdir(parents=True, exist_ok=True)
        descriptor = os.open(save_dir / "launch" / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise PreflightError(
            f"--save-dir {save_dir} cannot be written ({error.strerror}); name another folder"
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OptionsError(
                f"--save-dir {save_dir} is in use by another run, which writes the same checkpoints; wait for its end, "
                "or name a new --save-dir"
            ) from None
        except OSError:
            pass  # a file system without locks: as safe as before, and no reason not to run
        yield
    finally:
        os.close(descriptor)

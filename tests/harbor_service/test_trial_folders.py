"""Which trial folders are removed, and which never are."""

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harbor_service.trial_folders import MARKER, TrialFolders
from sandbox.trial_dir import process_start
from tests.harbor_service.harbor_model_stub import ModelStub
from tests.harbor_service.harbor_server_process import AgentServerProcess

HOUR = 3600.0


def ended(folders: TrialFolders, name: str, *, hours_ago: float, kib: int = 4) -> Path:
    folder = folders.claim(name)
    (folder / "trial.log").write_bytes(b"x" * (kib << 10))
    folders.ended(name)
    then = time.time() - hours_ago * HOUR
    os.utime(folder / MARKER, (then, then))
    return folder


def names(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()}


def test_old_folders_go_and_young_ones_stay(tmp_path: Path) -> None:
    folders = TrialFolders(tmp_path, keep_seconds=2 * HOUR, keep_bytes=float("inf"))
    for name, hours in (("a", 3), ("b", 2.5), ("c", 1)):
        ended(folders, name, hours_ago=hours)
    assert sorted(folders.prune(time.time())) == ["a", "b"]
    assert names(tmp_path) == {"c"}


def test_the_oldest_go_until_the_rest_fits(tmp_path: Path) -> None:
    folders = TrialFolders(tmp_path, keep_seconds=float("inf"), keep_bytes=300 << 10)
    for name, hours in (("old", 3), ("middle", 2), ("young", 1)):
        ended(folders, name, hours_ago=hours, kib=128)
    assert folders.prune(time.time()) == ["old"]
    assert folders.prune(time.time()) == []
    assert names(tmp_path) == {"middle", "young"}


def test_a_running_trial_is_never_removed(tmp_path: Path) -> None:
    folders = TrialFolders(tmp_path, keep_seconds=0, keep_bytes=0)
    folder = folders.claim("running")
    os.utime(folder / MARKER, (0, 0))
    assert folders.prune(time.time()) == []
    folders.ended("running")
    assert folders.prune(time.time() + 1) == ["running"]


def test_a_folder_that_cannot_have_its_marker_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, text: str) -> None:
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    folders = TrialFolders(tmp_path, keep_seconds=0, keep_bytes=0)
    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space"):
        patch.setattr(Path, "write_text", full)
        folders.claim("full")
    assert names(tmp_path) == set()
    assert folders.claim("full").is_dir()


def test_what_is_not_ours_is_never_removed(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "trials", tmp_path / "elsewhere"
    folders = TrialFolders(root, keep_seconds=0, keep_bytes=0)
    for folder in (root / "notes", root / "broken", root / "linked-marker", elsewhere):
        folder.mkdir(parents=True)
        (folder / "file").write_text("mine")
    (root / "file").write_text("mine")
    (root / "broken" / MARKER).write_text("{")
    ours = json.dumps({"pid": os.getpid(), "start": process_start(os.getpid())})
    (elsewhere / MARKER).write_text(ours)
    (root / "link").symlink_to(elsewhere)
    (root / "linked-marker" / MARKER).symlink_to(elsewhere / MARKER)
    before = names(root)
    assert folders.prune(time.time() + HOUR) == []
    assert names(root) == before and (elsewhere / "file").exists()


def test_a_link_in_a_trial_folder_is_not_followed(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "trials", tmp_path / "elsewhere"
    root.mkdir()
    elsewhere.mkdir()
    (elsewhere / "file").write_text("mine")
    folders = TrialFolders(root, keep_seconds=0, keep_bytes=0)
    (ended(folders, "hostile", hours_ago=1) / "agent").symlink_to(elsewhere)
    assert folders.prune(time.time()) == ["hostile"]
    assert (elsewhere / "file").exists()


def test_another_servers_folders_stay_while_it_lives(tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    folders = TrialFolders(tmp_path, keep_seconds=0, keep_bytes=0)
    folder = ended(folders, "theirs", hours_ago=1)
    (folder / MARKER).write_text(json.dumps({"pid": other.pid, "start": process_start(other.pid)}))
    assert folders.prune(time.time() + HOUR) == []
    other.communicate(b"\n")
    assert folders.prune(time.time() + HOUR) == ["theirs"]


@pytest.mark.parametrize("task", ["mkdir-1", "a b/c", "日本", "..", "x" * 255, "-rf"])
def test_a_folder_name_is_one_plain_component(tmp_path: Path, task: str) -> None:
    name = TrialFolders(tmp_path, keep_seconds=0, keep_bytes=0).new_name(task)
    assert "/" not in name and not name.startswith((".", "-")) and len(name) < 64 and name.isascii()


def test_the_server_removes_ended_trials_over_its_limits(tmp_path: Path, tasks_dir: Path, model: ModelStub) -> None:
    (tmp_path / "trials" / "notes").mkdir(parents=True)
    first = AgentServerProcess(tmp_path, tasks_dir)
    assert first.run("mkdir-1", model.base_url).json()["reward"] == 1.0
    first.close()
    assert len(names(first.trials_dir)) == 2
    first.ready_file.unlink()
    second = AgentServerProcess(tmp_path, tasks_dir, "--keep-trials-gb", "0")
    try:
        deadline = time.monotonic() + 30
        while names(second.trials_dir) != {"notes"} and time.monotonic() < deadline:
            time.sleep(0.05)
        assert names(second.trials_dir) == {"notes"}
    finally:
        second.close()

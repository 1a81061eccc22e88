"""Control groups for trials, where the server was given a part of the tree.

STUB: most machines that run these tests have no delegated cgroup v2 with the memory controller, so plain folders with
the kernel's file names stand in for the tree; what the kernel does with the numbers is not tested here.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox import cgroup
from sandbox.cgroup import TrialGroup, divide, own_group
from sandbox.limits import Limits, SandboxLimitExceeded
from sandbox.trial import Sandbox

V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
HYBRID = "30 23 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n31 23 0:27 / /x rw - cgroup cgroup rw,memory\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory hugetlb pids\n")
    (tmp_path / "cgroup.procs").write_text(f"{os.getpid()}\n")
    (tmp_path / "cgroup.subtree_control").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("text", "mounts", "folder"),
    [
        ("0::/user.slice/run-1.scope\n", V2, "/sys/fs/cgroup/user.slice/run-1.scope"),
        ("0::/\n", V2, "/sys/fs/cgroup"),
        ("4:memory:/x\n0::/y\n", HYBRID, "/sys/fs/cgroup/unified/y"),
        ("0::/a/b\n", V2.replace(" / ", " /a "), "/sys/fs/cgroup/b"),
        ("0::/other\n", V2.replace(" / ", " /a "), None),
        ("4:memory:/x\n", V2, None),
        ("0::/\n", "22 1 0:20 / /proc rw - proc proc rw\n", None),
    ],
)
def test_the_own_group_is_found(text: str, mounts: str, folder: str | None) -> None:
    assert own_group(text, mounts) == (None if folder is None else Path(folder))


def test_a_group_of_ours_alone_is_divided(tree: Path) -> None:
    (tree / "trial-200001").mkdir()
    assert divide(tree, os.getpid()) == tree
    assert (tree / "server" / "cgroup.procs").read_text() == str(os.getpid())
    assert (tree / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"
    assert not (tree / "trial-200001").exists()


def test_a_group_with_other_processes_is_left_alone(tree: Path) -> None:
    (tree / "cgroup.procs").write_text(f"1\n{os.getpid()}\n")
    assert divide(tree, os.getpid()) is None
    assert not (tree / "server").exists()


def test_a_tree_without_the_memory_controller_is_not_used(tree: Path) -> None:
    (tree / "cgroup.controllers").write_text("hugetlb\n")
    assert divide(tree, os.getpid()) is None


def test_a_trials_group_has_its_limits(tree: Path) -> None:
    group = TrialGroup(tree, "trial-1", Limits(total_memory_mb=1000, disk_mb=200, shm_mb=16, cpus=3, processes=50))
    written = {path.name: path.read_text() for path in group.path.iterdir()}
    assert written == {
        "memory.max": str(1280 << 20),
        "memory.oom.group": "0",
        "memory.swap.max": "0",
        "pids.max": "58",
        "cpu.max": "300000 100000",
    }


async def test_a_tree_that_refuses_does_not_stop_trials(
    tree: Path, base_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroup, "delegated_group", lambda: tree / "gone")
    sandbox = Sandbox(base_dir=base_dir)
    await sandbox.start()
    try:
        assert (await sandbox.run("echo on")).stdout == "on\n"
    finally:
        await sandbox.close()


async def test_a_trial_whose_group_ran_out_of_memory_is_ended_by_name(
    tree: Path, base_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroup, "delegated_group", lambda: tree)
    sandbox = Sandbox(base_dir=base_dir)
    await sandbox.start()
    try:
        (group,) = tree.glob("trial-*")
        assert int((group / "cgroup.procs").read_text()) > 1
        (group / "memory.events").write_text("low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n")
        assert (await sandbox.run("echo on")).stdout == "on\n"
        (group / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 1\noom_kill 1\n")
        with pytest.raises(SandboxLimitExceeded, match="control group reached 4432 MiB"):
            await sandbox.run("sleep 60", env={"PATH": "/usr/bin"})
    finally:
        await sandbox.close()

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.checks.folders import (
    check_disk,
    check_offload,
    check_paths,
    check_repository,
    check_writable,
    file_system,
)
from launcher.preflight import Status

REPOSITORY = Path(__file__).parents[3]


def test_a_save_folder_below_a_file_fails(tmp_path: Path) -> None:
    assert check_writable("save folder", tmp_path / "new" / "run", "--save-dir").status is Status.OK
    refused = check_writable("traces", Path("/proc/none"), "--save-traces-dir")
    assert refused.status is Status.FAILURE and "--save-traces-dir" in str(refused)
    assert list(tmp_path.iterdir()) == []


def test_whatever_keeps_a_folder_from_being_made_fails_with_its_option(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "dangling").symlink_to(tmp_path / "none")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    for inside in ("file", "file/x", "dangling", "dangling/x", "loop", "loop/x/y", "n" * 300, f"new/{'n' * 300}/x"):
        finding = check_writable("save folder", tmp_path / inside, "--save-dir")
        assert finding.status is Status.FAILURE, inside
        assert str(tmp_path / inside) in finding.sentence and "--save-dir" in finding.way_out
        check_disk(tmp_path / inside, 1)
    for inside in ("folder", "link/x/y", "new"):
        assert check_writable("save folder", tmp_path / inside, "--save-dir").status is Status.OK


def test_a_disk_too_small_for_the_checkpoints_fails(tmp_path: Path) -> None:
    assert check_disk(tmp_path, 2**60).status is Status.FAILURE
    assert check_disk(tmp_path, 1).status is Status.OK
    assert check_disk(tmp_path, None).status is Status.WARNING


def test_a_path_that_does_not_exist_fails_with_its_option(tmp_path: Path) -> None:
    assert check_paths({"--miles-path": tmp_path}).status is Status.OK
    finding = check_paths({"--miles-path": tmp_path, "--megatron-path": tmp_path / "none"})
    assert finding.status is Status.FAILURE
    assert f"--megatron-path {tmp_path / 'none'} does not exist" in finding.sentence
    assert "--miles-path" not in finding.sentence


def test_a_node_without_this_repository_fails(tmp_path: Path) -> None:
    assert check_repository(REPOSITORY).status is Status.OK
    finding = check_repository(tmp_path)
    assert finding.status is Status.FAILURE
    assert "swe_agent_function.py and generate.py" in finding.sentence


def test_an_offload_folder_in_memory_fails() -> None:
    finding = check_offload(Path("/dev/shm/offload/of/this/run"), 0)
    assert finding.status is Status.FAILURE
    assert "tmpfs, which is memory" in finding.sentence
    assert "--offload-train-disk-dir" in finding.way_out


def test_an_offload_folder_without_room_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The folder of the tests may itself be in memory.
    monkeypatch.setattr("launcher.checks.folders.file_system", lambda folder: "ext4")
    assert check_offload(tmp_path / "offload", 1).status is Status.OK
    assert check_offload(tmp_path / "offload", 2**60).status is Status.FAILURE
    assert check_offload(Path("/proc/offload"), 1).status is Status.FAILURE


def test_the_file_system_is_that_of_the_deepest_mount(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    inner = tmp_path / "with space"
    inner.mkdir()
    escaped = str(inner).replace(" ", "\\040")
    mounts.write_text(f"/dev/a / ext4 rw 0 0\nnone {escaped} tmpfs rw 0 0\n/dev/b /srv xfs rw 0 0\n")
    assert file_system(inner / "not" / "yet", mounts) == "tmpfs"
    assert file_system(tmp_path, mounts) == "ext4"
    mounts.write_text(mounts.read_text() + f"/dev/c {escaped} ext4 rw 0 0\n")
    assert file_system(inner, mounts) == "ext4"

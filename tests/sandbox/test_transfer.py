"""Files cross the border without following what the agent planted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox.rootfs import TransferRefused
from sandbox.trial import Sandbox

ENV = {"PATH": "/usr/bin:/bin"}
BUDGET = 1 << 20


async def test_a_tree_arrives_with_modes_and_links(box: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "run.sh").write_text("echo ran\n")
    (tmp_path / "sub" / "run.sh").chmod(0o750)
    (tmp_path / "link").symlink_to("sub/run.sh")
    box.files.put_tree(tmp_path, "/app/x")
    ended = await box.run("stat -c %a:%u /app/x/sub/run.sh; cat /app/x/link", env=ENV)
    assert ended.stdout == "750:0\necho ran\n"


async def test_downloaded_links_lead_nowhere(box: Sandbox, tmp_path: Path) -> None:
    await box.run(
        "cd /logs/verifier; ln -s /etc/hostname reward.txt; ln -s / root; mkfifo pipe; mkdir d; echo 1 > d/real;"
        " ln /logs/verifier/d/real hard",
        env=ENV,
    )
    left_out = box.files.get_tree("/logs/verifier", tmp_path / "v", BUDGET)
    found = sorted(str(path.relative_to(tmp_path / "v")) for path in (tmp_path / "v").rglob("*"))
    assert found == ["d", "d/real", "hard"]
    assert sorted(Path(path).name for path in left_out) == ["pipe", "reward.txt", "root"]


async def test_a_link_out_of_the_sandbox_stays_inside(box: Sandbox, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("ours")
    await box.run(f"mkdir -p /app; ln -s {outside} /app/a; ln -s ../../../../../../..{outside} /app/b", env=ENV)
    for link in ("/app/a", "/app/b"):
        with pytest.raises(FileNotFoundError):
            box.files.get_file(f"{link}/secret", tmp_path / "got", BUDGET)
    (tmp_path / "upload").write_text("task")
    with pytest.raises(OSError, match="exists"):
        box.files.put_file(tmp_path / "upload", "/app/a/planted")
    assert sorted(os.listdir(outside)) == ["secret"]


async def test_upload_replaces_a_link_instead_of_writing_through_it(box: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "test.sh").write_text("task")
    await box.run("echo agent > /tmp/mine; ln -s /tmp/mine /tests/test.sh; mkfifo /tests/pipe", env=ENV)
    box.files.put_tree(tmp_path, "/tests")
    box.files.put_file(tmp_path / "test.sh", "/tests/pipe")
    assert (await box.run("cat /tmp/mine /tests/test.sh /tests/pipe", env=ENV)).stdout == "agent\ntasktask"


async def test_a_pipe_does_not_block_a_download(box: Sandbox, tmp_path: Path) -> None:
    await box.run("mkfifo /tmp/pipe", env=ENV)
    with pytest.raises(FileNotFoundError, match="not a regular file"):
        box.files.get_file("/tmp/pipe", tmp_path / "got", BUDGET)


async def test_an_existing_link_on_this_machine_is_not_written_through(box: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "ours").write_text("ours")
    (tmp_path / "target").symlink_to(tmp_path / "ours")
    await box.run("echo theirs > /tmp/f", env=ENV)
    box.files.get_file("/tmp/f", tmp_path / "target", BUDGET)
    assert (tmp_path / "ours").read_text() == "ours"
    assert (tmp_path / "target").read_text() == "theirs\n"


async def test_a_flooded_log_does_not_cost_the_reward(box: Sandbox, tmp_path: Path) -> None:
    await box.run("cd /logs/verifier; truncate -s 20M log; echo 1 > reward.txt", env=ENV)
    left_out = box.files.get_tree("/logs/verifier", tmp_path, BUDGET)
    assert (tmp_path / "reward.txt").read_text() == "1\n"
    assert left_out == ["/logs/verifier/log"]


async def test_a_file_over_the_limit_is_refused_and_not_kept(box: Sandbox, tmp_path: Path) -> None:
    await box.run("truncate -s 2M /tmp/large", env=ENV)
    with pytest.raises(TransferRefused, match="download_mb"):
        box.files.get_file("/tmp/large", tmp_path / "large", BUDGET)
    assert not (tmp_path / "large").exists()


async def test_a_deep_tree_does_not_cost_the_reward(box: Sandbox, tmp_path: Path) -> None:
    deep = "(cd /logs/verifier; for i in {1..40}; do mkdir $(printf 'd%.0s' {1..250}); cd d*; echo x > f; done)"
    await box.run(f"{deep}; cd /logs/verifier; mkdir -p $(printf 'e/%.0s' {{1..100}}); echo 1 > reward.txt", env=ENV)
    left_out = box.files.get_tree("/logs/verifier", tmp_path / "t", BUDGET)
    assert (tmp_path / "t" / "reward.txt").read_text() == "1\n"
    # 16 names of 250 bytes fill the longest path of this machine, 64 folders are followed.
    assert len(left_out) >= 2

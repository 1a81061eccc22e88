"""What a command inside cannot see, change or exhaust."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox.limits import Limits
from sandbox.trial import Sandbox


async def output(box: Sandbox, command: str, **options: float) -> str:
    ended = await box.run(command, env={"PATH": "/usr/bin:/bin"}, timeout=options.get("timeout", 20))
    return ended.stdout.strip()


async def test_namespaces_differ_from_ours(box: Sandbox) -> None:
    for name in ("user", "mnt", "pid", "ipc", "uts", "net"):
        assert await output(box, f"readlink /proc/self/ns/{name}") != os.readlink(f"/proc/self/ns/{name}")


async def test_our_environment_does_not_enter(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET_OF_OURS", "7d0f")
    ended = await box.run("env; cat /proc/1/environ", env={"GIVEN": "yes"})
    names = {line.partition("=")[0] for line in ended.stdout.replace("\0", "\n").splitlines()}
    assert "GIVEN" in names
    assert names <= {"GIVEN", "PWD", "SHLVL", "_", "OLDPWD"}


async def test_there_is_no_network(box: Sandbox) -> None:
    assert await output(box, "cat /proc/net/dev | grep -c :") == "1"
    assert "unreachable" in (await box.run("exec 3<>/dev/tcp/192.0.2.1/80", env={"PATH": "/usr/bin"})).stderr


async def test_files_and_processes_of_this_machine_are_not_there(box: Sandbox, base_dir: Path) -> None:
    assert await output(box, f"ls {Path(__file__).resolve().parent} {base_dir} /sys 2>/dev/null") == ""
    pids = (await output(box, "ls /proc | grep -E '^[0-9]+$'")).split()
    assert len(pids) < 8


@pytest.mark.parametrize("path", ["/usr/bin/planted", "/etc/ld.so.preload", "/dev/planted", "/.sandbox/planted"])
async def test_system_folders_are_read_only(box: Sandbox, path: str) -> None:
    assert (await box.run(f"echo x > {path}")).return_code != 0


async def test_no_capability_and_no_way_to_one(box: Sandbox) -> None:
    status = await output(box, "grep -E '^(CapEff|CapPrm|NoNewPrivs)' /proc/self/status")
    assert status.split() == ["CapPrm:", "0" * 16, "CapEff:", "0" * 16, "NoNewPrivs:", "1"]
    for command in ("unshare -Ur true", "unshare -m true", "mount -t tmpfs x /mnt", "mknod /tmp/d c 1 3"):
        assert (await box.run(command, env={"PATH": "/usr/sbin:/usr/bin"})).return_code != 0


async def test_a_fork_bomb_ends_with_the_restart(box: Sandbox) -> None:
    await box.run("b() { b | b & }; b", timeout=3)
    await box.restart()
    assert await output(box, "echo alive") == "alive"


async def test_killing_every_process_only_ends_that_command(box: Sandbox) -> None:
    ended = await box.run("kill -9 -1; echo still here", timeout=10)
    assert (ended.return_code, ended.why) == (137, "")
    assert await output(box, "echo alive") == "alive"


async def test_signals_to_the_first_process_do_not_stop_the_restart(box: Sandbox) -> None:
    await output(box, "echo kept > /tmp/kept; kill -STOP 1; kill -9 1; kill -SEGV 1; kill -TERM 1")
    await box.restart()
    assert await output(box, "cat /tmp/kept") == "kept"


async def test_disk_use_is_capped_and_the_tests_still_fit(box: Sandbox, tmp_path: Path) -> None:
    await box.run("for i in 1 2 3 4 5 6; do head -c 30000000 /dev/zero > /tmp/f$i; done", env={"PATH": "/usr/bin"})
    used = os.fstatvfs(box.files.fd)
    assert used.f_blocks * used.f_frsize <= 48 << 20
    assert used.f_bavail == 0
    await box.restart()
    (tmp_path / "test.sh").write_bytes(b"#" * 1_000_000)
    box.files.put_tree(tmp_path, "/tests")
    assert await output(box, "wc -c < /tests/test.sh") == "1000000"


async def test_the_number_of_files_is_capped(box: Sandbox, tmp_path: Path) -> None:
    ended = await box.run("cd /tmp; for ((i=0; i<4000; i++)); do : > $i || exit 9; done")
    assert ended.return_code == 9
    await box.restart()
    (tmp_path / "test.sh").touch()
    box.files.put_tree(tmp_path, "/tests")
    assert await output(box, "ls /tests") == "test.sh"


@pytest.mark.parametrize("place", ["/dev/shm", "/dev", "/tmp", "/run"])
async def test_no_writable_place_escapes_the_cap(box: Sandbox, place: str) -> None:
    await box.run(f"for i in 1 2 3 4; do head -c 30000000 /dev/zero > {place}/filler$i; done", env={"PATH": "/usr/bin"})
    size = await output(box, f"cat {place}/filler* 2>/dev/null | wc -c")
    assert int(size) < 50 << 20


async def test_one_process_cannot_take_all_memory(box: Sandbox, base_dir: Path) -> None:
    small = Sandbox(Limits(memory_mb=64), base_dir)
    await small.start()
    try:
        assert (await small.run("x=$(head -c 100000000 /dev/zero | tr '\\0' a)", timeout=20)).return_code != 0
        assert (await small.run("echo alive")).stdout == "alive\n"
    finally:
        await small.close()
    assert await output(box, "echo alive") == "alive"


async def test_a_large_file_ends_its_writer_only(box: Sandbox) -> None:
    ended = await box.run("head -c 40000000 /dev/zero > /tmp/large", env={"PATH": "/usr/bin"})
    assert ended.return_code != 0
    assert int(await output(box, "wc -c < /tmp/large")) <= 32 << 20

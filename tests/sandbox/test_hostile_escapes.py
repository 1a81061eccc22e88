"""Attacks on what lies outside the sandbox: this machine, the server, other trials."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox.limits import Limits
from sandbox.trial import Sandbox
from tests.sandbox.inside import ENV, got, python


@contextmanager
def listener(family: int, address: object) -> Iterator[list[bytes]]:
    """A real service of this machine; answers with the list of what reached it."""
    received: list[bytes] = []
    server = socket.socket(family, socket.SOCK_STREAM)
    server.bind(address)  # pyright: ignore[reportArgumentType]
    server.listen()
    server.settimeout(0.05)
    end = threading.Event()

    def serve() -> None:
        while not end.is_set():
            try:
                connection, _ = server.accept()
            except TimeoutError:
                continue
            received.append(connection.recv(100))
            connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield received
    finally:
        end.set()
        thread.join()
        server.close()


async def test_loopback_services_are_not_reached(box: Sandbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with listener(socket.AF_INET, ("127.0.0.1", port)) as received:
        socket.create_connection(("127.0.0.1", port)).sendall(b"ours")
        answer = await python(box, f"socket.create_connection(('127.0.0.1', {port}), 2).sendall(b'theirs')")
    assert "refused" in answer
    assert received == [b"ours"]


async def test_abstract_sockets_are_not_reached(box: Sandbox) -> None:
    name = f"\0agent-server-test-{os.getpid()}"
    with listener(socket.AF_UNIX, name) as received:
        answer = await python(box, f"s = socket.socket(socket.AF_UNIX); s.connect({name!r}); s.sendall(b'theirs')")
    assert "refused" in answer
    assert received == []


async def test_sockets_in_files_are_not_reached(box: Sandbox, base_dir: Path) -> None:
    path = base_dir / "service"
    with listener(socket.AF_UNIX, str(path)) as received:
        answer = await python(box, f"s = socket.socket(socket.AF_UNIX); s.connect({str(path)!r})")
    assert "No such file" in answer
    assert received == []


async def test_other_kinds_of_sockets_do_not_exist(box: Sandbox) -> None:
    families = ("AF_VSOCK", "AF_ALG", "AF_PACKET", "AF_BLUETOOTH", "AF_CAN", "AF_TIPC")
    calls = "\n".join(f"print(sysc(41, socket.{family}, 1, 0))" for family in families)
    if os.uname().machine == "aarch64":
        calls = calls.replace("sysc(41", "sysc(198")
    assert (await python(box, calls)).split() == [str(errno.EAFNOSUPPORT)] * len(families)


async def test_the_servers_environment_is_not_seen(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET_OF_OURS", "7d0f5a")
    os.environ["ANOTHER_SECRET"] = "7d0f5a"
    everything = "cat /proc/*/environ /proc/*/cmdline /proc/*/task/*/environ 2>/dev/null; env; set"
    seen = await got(box, everything)
    del os.environ["ANOTHER_SECRET"]
    assert "7d0f5a" not in seen
    assert "pytest" not in seen


async def test_other_processes_are_not_seen(box: Sandbox) -> None:
    assert str(os.getpid()) not in (await got(box, "ls /proc")).split()
    assert await got(box, f"kill -9 {os.getpid()} && echo killed") == ""
    parents = await got(box, "cat /proc/1/status | grep -E '^(PPid|NSpid)'")
    assert parents.split() == ["PPid:", "0", "NSpid:", "1"]


async def test_another_trial_is_not_seen(box: Sandbox, base_dir: Path) -> None:
    other = Sandbox(box.limits, base_dir)
    await other.start()
    try:
        await other.run("echo 7d0f5a > /tmp/secret; sleep 60 &", env=ENV)
        seen = await got(
            box,
            f"ls {base_dir} {base_dir}/*; cat {base_dir}/*/root/tmp/secret /proc/*/root/tmp/secret; pgrep sleep;"
            " kill -9 -1",
        )
        assert seen == ""
        assert (await other.run("cat /tmp/secret; pgrep -c sleep", env=ENV)).stdout == "7d0f5a\n1\n"
    finally:
        await other.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only a server of root's has user ids to give")
async def test_another_trial_has_another_user_id(box: Sandbox, base_dir: Path) -> None:
    other = Sandbox(box.limits, base_dir)
    await other.start()
    try:
        owners = [path.stat().st_uid for path in base_dir.glob("trial-*")]
        assert len(set(owners)) == 2
        assert 0 not in owners
        assert {await got(one, "id -u") for one in (box, other)} == {"0"}
    finally:
        await other.close()


async def test_hard_links_to_this_machines_files_are_refused(box: Sandbox) -> None:
    for source in ("/usr/bin/su", "/etc/passwd", "/.sandbox/seccomp", "/proc/1/environ"):
        assert (await box.run(f"ln {source} /tmp/link", env=ENV)).return_code != 0
    assert await got(box, "ls /tmp") == ""


async def test_links_out_of_the_sandbox_bring_nothing(box: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("ours")
    await got(
        box,
        f"cd /logs/agent; ln -s {tmp_path}/secret a; ln -s / b; ln -s /proc/1/root c; ln -s /proc/self/cwd d;"
        f" ln -s ../../../../../../../..{tmp_path} e; mkdir f; ln -s {tmp_path}/secret f/reward.txt",
    )
    box.files.get_tree("/logs/agent", tmp_path / "out", 1 << 20)
    assert [path.name for path in (tmp_path / "out").rglob("*")] == ["f"]
    for path in ("a", "e/secret", f"b{tmp_path}/secret", f"c{tmp_path}/secret", "f/reward.txt"):
        with pytest.raises(FileNotFoundError):
            box.files.get_file(f"/logs/agent/{path}", tmp_path / "got", 1 << 20)


async def test_odd_names_arrive_or_are_left_out(box: Sandbox, tmp_path: Path) -> None:
    await got(
        box,
        "cd /logs/agent; touch -- $'\\xff\\xfe' $'a\\nb' $'\\x1b]0;title\\x07' '-rf' '*' ' ' $'\\u202e' ..x '~';"
        " touch -- $(printf 'n%.0s' {1..255}); echo kept > kept",
    )
    left_out = box.files.get_tree("/logs/agent", tmp_path / "out", 1 << 20)
    names = os.listdir(os.fsencode(tmp_path / "out"))
    assert len(names) + len(left_out) == 11
    assert (tmp_path / "out" / "kept").read_text() == "kept\n"


async def test_sparse_files_do_not_fill_this_machine(box: Sandbox, tmp_path: Path) -> None:
    await got(box, "cd /logs/agent; for i in $(seq 40); do truncate -s 30M $i; done; echo kept > kept")
    box.files.get_tree("/logs/agent", tmp_path / "out", 64 << 20)
    assert sum(path.stat().st_blocks * 512 for path in (tmp_path / "out").iterdir()) <= 64 << 20


SYSTEM_PATHS = (
    *("/etc/passwd", "/etc/hosts", "/etc/ld.so.preload", "/usr/bin/planted", "/usr/local/bin/planted", "/lib/x"),
    *("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/sys/vm/drop_caches", "/sys/kernel/x"),
    *("/dev/planted", "/dev/mem", "/dev/kmsg", "/dev/sda", "/dev/vda", "/.sandbox/cell1.status.x", "/proc/1/mem"),
)


async def test_nothing_of_this_machine_can_be_written(box: Sandbox) -> None:
    paths = " ".join(SYSTEM_PATHS)
    assert await got(box, f"for p in {paths}; do (echo x > $p) 2>/dev/null && echo wrote $p; done") == ""


async def test_only_harmless_devices_are_there(box: Sandbox) -> None:
    found = (await got(box, "find /dev -type b -o -type c | sort")).split()
    assert set(found) <= {f"/dev/{name}" for name in ("full", "null", "ptmx", "random", "tty", "urandom", "zero")} | {
        "/dev/pts/ptmx"
    }


async def test_setuid_gives_nothing(box: Sandbox) -> None:
    await got(box, "cp /usr/bin/id /usr/bin/bash /tmp; chown 0:0 /tmp/id; chmod 6755 /tmp/id /tmp/bash")
    assert await got(box, "/tmp/id -u; grep -c 'CapEff:.*0000000000000000' /proc/self/status") == "0\n1"
    assert "CapEff:\t0000000000000000" in await got(box, "/tmp/bash -pc 'grep CapEff /proc/self/status'")
    assert await got(box, "su nobody -s /bin/sh -c 'echo switched'") == ""
    assert await got(box, "setpriv --reuid 1000 --clear-groups echo switched") == ""


async def test_a_crash_leaves_no_core_dump(box: Sandbox) -> None:
    await got(box, "cd /tmp; ulimit -c unlimited; sh -c 'kill -SEGV $$'; sleep 0.1")
    assert (
        await got(box, "ulimit -c; find / -xdev -name 'core*' -type f -not -path '/usr/*' -newer /etc/hostname") == "0"
    )


async def test_the_oom_killer_still_prefers_the_trial(box: Sandbox) -> None:
    assert await got(box, "echo -1000 > /proc/self/oom_score_adj; cat /proc/self/oom_score_adj") == "1000"
    assert await got(box, "echo 0 > /proc/1/oom_score_adj; cat /proc/1/oom_score_adj") == "1000"


async def test_priorities_cannot_be_raised(box: Sandbox) -> None:
    assert await got(box, "nice -n -5 nice; chrt -f 1 true && echo real-time") == str(os.nice(0))


async def test_limits_cannot_be_raised(box: Sandbox) -> None:
    for flag in ("-n", "-u", "-f", "-d", "-v", "-c"):
        assert await got(box, f"ulimit -H {flag} unlimited && echo raised") == ""


async def test_forged_requests_stay_within_the_trial(box: Sandbox) -> None:
    forge = "for p in /.sandbox/*.in /.sandbox/*.status /.sandbox/*.out /proc/*/fd/*; do timeout 1 sh -c"
    await got(box, f"{forge} \"echo '1000001 0' > $p; echo stop cell1 > $p; echo grow size=0 > $p\" 2>/dev/null & done")
    await box.restart()
    assert await got(box, "echo alive") == "alive"
    assert os.fstatvfs(box.files.fd).f_blocks > 0


async def test_a_trial_is_kept_on_its_processors(base_dir: Path) -> None:
    ours = len(os.sched_getaffinity(0))
    sandbox = Sandbox(Limits(cpus=1), base_dir)
    await sandbox.start()
    try:
        assert await got(sandbox, "nproc; taskset -p ffff $$ > /dev/null 2>&1 && echo widened") == "1"
    finally:
        await sandbox.close()
    assert len(os.sched_getaffinity(0)) == ours

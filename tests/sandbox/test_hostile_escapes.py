"""Attacks on what lies outside the sandbox: the kernel, this machine, the server, other trials."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox.bubblewrap import SandboxUnavailable
from sandbox.limits import Limits
from sandbox.seccomp import seccomp_filter
from sandbox.trial import Sandbox

ENV = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}


async def got(box: Sandbox, command: str) -> str:
    """What an attacker sees of its command."""
    return (await box.run(command, env=ENV, timeout=30)).stdout.strip()


async def python(box: Sandbox, code: str) -> str:
    """Run Python inside; `sysc(number, *arguments)` gives the error number of a system call, or 0."""
    lines = (
        "import ctypes, os, socket, sys\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "def sysc(n, *a):\n"
        "    r = libc.syscall(n, *[ctypes.c_long(x) if isinstance(x, int) else x for x in a])\n"
        "    return ctypes.get_errno() if r < 0 else 0\n"
    )
    ended = await box.run('exec python3 -c "$CODE"', env={**ENV, "CODE": lines + code}, timeout=30)
    return (ended.stdout + ended.stderr[-300:]).strip()


# ---- the kernel ---------------------------------------------------------------------

X86_64 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers below are those of x86_64")

REFUSED = {
    "ptrace_traceme": "sysc(101, 0, 0, 0, 0)",
    "ptrace_seize_the_first_process": "sysc(101, 0x4206, 1, 0, 0)",
    "process_vm_readv_of_the_first_process": "sysc(310, 1, 0, 0, 0, 0, 0)",
    "process_vm_writev_of_the_first_process": "sysc(311, 1, 0, 0, 0, 0, 0)",
    "pidfd_getfd": "sysc(438, 0, 0, 0)",
    "bpf_load": "sysc(321, 5, 0, 0)",
    "perf_event_open": "sysc(298, 0, 0, -1, -1, 0)",
    "userfaultfd": "sysc(323, 1)",
    "keyctl_session_keyring": "sysc(250, 0, -3, 1)",
    "add_key": "sysc(248, b'user', b'x', b'y', 1, -5)",
    "request_key": "sysc(249, b'user', b'x', 0, -5)",
    "mount": "sysc(165, b'tmpfs', b'/mnt', b'tmpfs', 0, 0)",
    "umount_of_usr": "sysc(166, b'/usr', 2)",
    "pivot_root": "sysc(155, b'/tmp', b'/tmp')",
    "chroot": "sysc(161, b'/tmp')",
    "new_mount_interface": "min(sysc(430, b'tmpfs', 0), sysc(428, -100, b'/', 1), sysc(429, 0, b'', 0, b'', 0))",
    "mount_setattr": "sysc(442, -100, b'/usr', 0, 0, 0)",
    "unshare_user_namespace": "sysc(272, 0x10000000)",
    "clone_with_a_namespace": "sysc(56, 0x10000000 | 17, 0, 0, 0, 0)",
    "clone_with_a_network_namespace": "sysc(56, 0x40000000 | 17, 0, 0, 0, 0)",
    "setns": "sysc(308, os.open('/proc/self/ns/net', 0), 0)",
    "kexec_load": "sysc(246, 0, 0, 0, 0)",
    "init_module": "min(sysc(175, 0, 0, b''), sysc(313, 0, b'', 0), sysc(176, b'x', 0))",
    "open_by_handle_at": "sysc(304, -100, 0, 0)",
    "fanotify_init": "sysc(300, 0, 0)",
    "reboot": "sysc(169, 0xfee1dead, 672274793, 0, 0)",
    "settimeofday": "min(sysc(164, 0, 0), sysc(227, 0, 0))",
    "syslog": "sysc(103, 3, 0, 0)",
    "ioports": "min(sysc(172, 3), sysc(173, 0x378, 1, 1))",
    "segment_descriptors": "sysc(154, 0, 0, 0)",
    "more_processors": "sysc(203, 0, 8, b'\\xff' * 8)",
    "typing_on_a_terminal": "sysc(16, os.openpty()[1], 0x5412, b'x')",
    "semaphores_that_no_process_maps": "sysc(64, 0, 32000, 0o600)",
    "pages_given_to_a_pipe": "sysc(278, 1, 0, 0, 0)",
    "device_node": "sysc(133, b'/tmp/null', 0o20666, 0x103)",
}


ABSENT = {
    "clone3": "sysc(435, 0, 0)",
    "io_uring": "sysc(425, 8, 0)",
    "asynchronous_io": "sysc(206, 8, 0)",
    "memory_files": "min(sysc(319, b'x', 0), sysc(447, 0))",
    "x32_numbers": "sysc(0x40000000 + 39)",
}


@pytest.fixture(scope="module")
def answers() -> dict[str, int]:
    """What one process inside got for each of the calls: error numbers, 0 for success."""

    async def ask() -> str:
        base = Path(tempfile.mkdtemp(prefix="sandbox-tests-"))
        base.chmod(0o711)
        sandbox = Sandbox(base_dir=base)
        await sandbox.start()
        try:
            calls = {**REFUSED, **ABSENT}
            return await python(sandbox, "\n".join(f"print({name!r}, {call})" for name, call in calls.items()))
        finally:
            await sandbox.close()
            shutil.rmtree(base)

    lines = [line.split() for line in asyncio.run(ask()).splitlines()]
    return {name: int(answer) for name, answer in lines}


@X86_64
@pytest.mark.parametrize("call", REFUSED)
def test_system_call_is_refused(call: str, answers: dict[str, int]) -> None:
    assert answers[call] == errno.EPERM


@X86_64
@pytest.mark.parametrize("call", ABSENT)
def test_system_call_does_not_exist(call: str, answers: dict[str, int]) -> None:
    assert answers[call] == errno.ENOSYS


@X86_64
async def test_calls_of_another_architecture_end_the_process(box: Sandbox) -> None:
    # mov eax, 20 (getpid of i386); int 0x80; ret
    code = "b'\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3'"
    run = (
        f"import mmap\nm = mmap.mmap(-1, 4096, prot=7)\nm.write({code})\n"
        "f = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))\nprint('got', f())"
    )
    assert "got" not in await python(box, run)


async def test_every_process_has_the_filter(box: Sandbox) -> None:
    assert await got(box, "cat /proc/1/status /proc/self/status | grep ^Seccomp:") == "Seccomp:\t2\nSeccomp:\t2"


async def test_large_shared_segments_are_refused(box: Sandbox) -> None:
    assert "Cannot allocate memory" in (await box.run("ipcmk -M 1000000", env=ENV)).stderr
    assert "created" not in await got(box, "ipcmk -Q")


async def test_ordinary_programs_do_not_meet_the_filter(box: Sandbox) -> None:
    work = (
        "import threading, subprocess, multiprocessing.shared_memory as s, concurrent.futures as c, asyncio\n"
        "t = threading.Thread(target=print, args=('thread',)); t.start(); t.join()\n"
        "print(subprocess.run(['true']).returncode, sum(c.ThreadPoolExecutor().map(int, range(9))))\n"
        "m = s.SharedMemory(create=True, size=4096); m.unlink(); asyncio.run(asyncio.sleep(0))\n"
        "a, b = socket.socketpair(); l = socket.create_server(('127.0.0.1', 0))\n"
        "socket.create_connection(l.getsockname()); print('connected', len(os.sched_getaffinity(0)) > 0)"
    )
    assert await python(box, work) == "thread\n0 36\nconnected True"


async def test_what_waits_in_sockets_is_little(box: Sandbox) -> None:
    """Of TCP's memory the whole machine has only so much, and no process maps it."""
    sent = (
        "l = socket.create_server(('127.0.0.1', 0)); n = 0\n"
        "pairs = [socket.socketpair(), (socket.create_connection(l.getsockname()), l.accept())]\n"
        "for one, _ in pairs:\n"
        "    for option in (7, 8, 32, 33): one.setsockopt(socket.SOL_SOCKET, option, 1 << 26)\n"
        "    one.setblocking(False)\n"
        "    try:\n        while True: n += one.send(b'x' * 65536)\n"
        "    except BlockingIOError: print('waits', n >> 20)\n"
    )
    await asyncio.sleep(0.5)  # the connections' limits are set beside the first command
    assert await python(box, sent) == "waits 0\nwaits 0"


async def test_one_trial_cannot_take_all_terminals(box: Sandbox, base_dir: Path) -> None:
    take = "n = 0\ntry:\n    while n < 300: os.openpty(); n += 1\nexcept OSError: print(n, flush=True)\n"
    other = Sandbox(box.limits, base_dir)
    await other.start()
    try:
        holding = asyncio.create_task(python(box, f"{take}import time; time.sleep(3)"))
        await asyncio.sleep(1)
        assert await python(other, take) == str(box.limits.terminals)
        assert await holding == str(box.limits.terminals)
        assert await got(other, "script -qc 'tty' /dev/null") == "/dev/pts/0"
    finally:
        await other.close()


def test_an_unknown_kind_of_machine_is_refused() -> None:
    with pytest.raises(SandboxUnavailable, match="x86_64 and aarch64, this machine is riscv64"):
        seccomp_filter("riscv64")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_is_a_program_the_kernel_can_take(machine: str) -> None:
    program = seccomp_filter(machine)
    count = len(program) // 8
    assert len(program) % 8 == 0
    assert count < 4096
    for i in range(count):
        operation, if_true, if_false = program[8 * i] | program[8 * i + 1] << 8, program[8 * i + 2], program[8 * i + 3]
        if operation & 7 == 5:
            assert i + 1 + max(if_true, if_false) < count
    assert program[-8] == 6


# ---- this machine -------------------------------------------------------------------


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

"""Attacks on the kernel: system calls, and what it keeps for a trial."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from sandbox.bubblewrap import SandboxUnavailable
from sandbox.seccomp import seccomp_filter
from sandbox.trial import Sandbox
from tests.sandbox.inside import ENV, got, python

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

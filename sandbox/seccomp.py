"""The system calls that a sandbox does without, as a program for the kernel (seccomp, classic BPF).

Everything else stays allowed: namespaces and missing capabilities already take the power from most calls; what is
refused here reaches code of the kernel that an agent's work never needs, or goes round one of our limits.
"""

from __future__ import annotations

import errno
import functools
import platform
import socket
import struct
from dataclasses import dataclass
from typing import Final

from sandbox.bubblewrap import SandboxUnavailable

_FORBIDDEN: Final = {
    # other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    # namespaces and mounts
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "fanotify_init": (300, 262),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    # the kernel's own programs, keys and modules
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "lookup_dcookie": (212, 18),
    # the machine
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "vhangup": (153, 58),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "uselib": (134, None),
    # round a limit of ours: which processors, memory that no process maps
    "sched_setaffinity": (203, 122),
    "msgget": (68, 186),
    "semget": (64, 190),
    "vmsplice": (278, 75),
}
"""Numbers on x86_64 and aarch64; these answer EPERM."""

_ABSENT: Final = {
    "clone3": (435, 435),  # its flags lie in memory, out of a filter's sight; libraries then use clone
    "io_setup": (206, 0),  # of its contexts the whole machine has only so many
    "io_uring_setup": (425, 425),  # would run calls that no filter sees
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "memfd_create": (319, 279),  # files outside the disk limit; callers then use ordinary ones
    "memfd_secret": (447, 447),
}
"""These answer ENOSYS: programs know older kernels and take another way."""

_CLONE, _IOCTL, _SOCKET, _SHMGET, _SETSOCKOPT = (56, 220), (16, 29), (41, 198), (29, 194), (54, 208)

# CLONE_NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_NAMESPACE_FLAGS: Final = 0x80 | 0x20000 | 0x2000000 | 0x4000000 | 0x8000000 | 0x10000000 | 0x20000000 | 0x40000000
_TERMINAL_INPUT: Final = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: typing on a terminal in somebody else's name
# Not AF_VSOCK above all: it has no namespace and leads from a virtual machine to the machine that runs it.
_FAMILIES: Final = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
# SO_SNDBUF, SO_RCVBUF and their FORCE forms: what waits in sockets is memory that no process maps.
_BUFFER_SIZES: Final = (7, 8, 32, 33)
_SEGMENT_BYTES: Final = 65_536  # of System V shared memory, 4096 segments of which are outside every limit

_KILL_PROCESS, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_X32_BIT: Final = 0x40000000


@dataclass(frozen=True)
class _Machine:
    column: int
    audit: int


_MACHINES: Final = {"x86_64": _Machine(0, 0xC000003E), "aarch64": _Machine(1, 0xC00000B7)}


@functools.cache
def seccomp_filter(machine: str = platform.machine()) -> bytes:
    """The program for a kind of machine, as bubblewrap takes it by `--seccomp`.

    Raises:
        SandboxUnavailable: the numbers of this kind's system calls are not known here.
    """
    kind = _MACHINES.get(machine)
    if kind is None:
        raise SandboxUnavailable(
            f"the sandbox's system call filter knows {' and '.join(_MACHINES)}, this machine is {machine}; "
            "use another environment"
        )
    program = _Program()
    program.load(_ARCHITECTURE)
    # Another architecture's calls (32-bit programs) have other numbers.
    program.unless(_EQUAL, kind.audit, _KILL_PROCESS)
    program.load(_NUMBER)
    if machine == "x86_64":
        program.when(_AT_LEAST, _X32_BIT, _ERRNO | errno.ENOSYS)
    for table, answer in ((_FORBIDDEN, errno.EPERM), (_ABSENT, errno.ENOSYS)):
        for numbers in table.values():
            number = numbers[kind.column]
            if number is not None:
                program.when(_EQUAL, number, _ERRNO | answer)

    with_flags = _Program()
    with_flags.load(_argument(0))
    with_flags.when(_ANY_BIT, _NAMESPACE_FLAGS, _ERRNO | errno.EPERM)
    program.branch(_CLONE[kind.column], with_flags)

    request = _Program()
    request.load(_argument(1))
    for number in _TERMINAL_INPUT:
        request.when(_EQUAL, number, _ERRNO | errno.EPERM)
    program.branch(_IOCTL[kind.column], request)

    family = _Program()
    family.load(_argument(0))
    for number in _FAMILIES:
        family.when(_EQUAL, number, _ALLOW)
    family.answer(_ERRNO | errno.EAFNOSUPPORT)
    program.branch(_SOCKET[kind.column], family)

    size = _Program()
    size.load(_argument(1) + 4)
    size.unless(_EQUAL, 0, _ERRNO | errno.ENOMEM)
    size.load(_argument(1))
    size.when(_AT_LEAST, _SEGMENT_BYTES + 1, _ERRNO | errno.ENOMEM)
    program.branch(_SHMGET[kind.column], size)

    option = _Program()
    option.load(_argument(1))
    option.unless(_EQUAL, socket.SOL_SOCKET, _ALLOW)
    option.load(_argument(2))
    for number in _BUFFER_SIZES:
        # As if it had been done: programs ask for large buffers and live with small ones.
        option.when(_EQUAL, number, _ERRNO)
    program.branch(_SETSOCKOPT[kind.column], option)

    program.answer(_ALLOW)
    return bytes(program.code)


class _Program:
    def __init__(self) -> None:
        self.code = bytearray()

    def _add(self, operation: int, value: int, if_true: int = 0, if_false: int = 0) -> None:
        self.code += struct.pack("=HBBI", operation, if_true, if_false, value)

    def load(self, offset: int) -> None:
        self._add(_LOAD, offset)

    def answer(self, action: int) -> None:
        self._add(_RETURN, action)

    def when(self, comparison: int, value: int, action: int) -> None:
        self._add(comparison, value, 0, 1)
        self.answer(action)

    def unless(self, comparison: int, value: int, action: int) -> None:
        self._add(comparison, value, 1, 0)
        self.answer(action)

    def branch(self, number: int, program: _Program) -> None:
        """Run `program` for this call, and allow what it lets through."""
        self._add(_EQUAL, number, 0, len(program.code) // 8 + 1)
        self.code += program.code
        self.answer(_ALLOW)


def _argument(n: int) -> int:
    """Where the low half of argument `n` lies (both kinds of machine are little-endian)."""
    return _ARGUMENTS + 8 * n

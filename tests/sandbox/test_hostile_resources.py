"""Attacks on memory, disk, processes and time, in real trials: the attacker is scored, its neighbours go on."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from sandbox.limits import Limits, SandboxLimitExceeded
from sandbox.trial import Sandbox
from tests.sandbox.hostile_trial import HostileTask, attacks
from trajectory.outcome import Outcome

ENV = {"PATH": "/usr/bin:/bin"}
HONEST = "echo right > /app/answer"
SMALL = {"total_memory_mb": 256, "memory_mb": 128, "disk_mb": 64, "inodes": 4000, "processes": 64, "flood_mb": 8}
# Each below the limit of one process, together above the limit of the trial.
FILL = "python3 -c 'import time; x = bytearray(b\"x\" * 2) * 45_000_000; time.sleep(60)'"


async def beside_an_honest_one(attack: str, base_dir: Path, folder: Path, agent_timeout: float = 60) -> Outcome:
    """The attack's outcome, after making sure that a trial that ran at the same time was paid."""
    hostile = HostileTask(folder / "hostile", base_dir, agent_timeout, **SMALL)
    honest = HostileTask(folder / "honest", base_dir, **SMALL)
    outcome, neighbour = await asyncio.gather(hostile.outcome(attack), honest.outcome(f"sleep 1; {HONEST}"))
    assert (neighbour.reward, neighbour.exit_status) == (1.0, "Submitted"), neighbour
    return outcome


MEMORY_BOMBS = {
    "many_processes": f"{HONEST}; for i in 1 2 3 4 5 6; do {FILL} & done; wait",
    "background_processes_after_the_task_is_done": (
        f"{HONEST}; for i in 1 2 3 4 5 6; do setsid {FILL} > /dev/null 2>&1 & done; sleep 30"
    ),
    "shared_memory_that_nobody_maps_any_more": (
        f"{HONEST}\npython3 -c 'import mmap, time\nm = [mmap.mmap(-1, 100_000_000) for _ in range(4)]\n"
        'for one in m: one.write(b"x" * 100_000_000); one.madvise(mmap.MADV_DONTNEED)\ntime.sleep(60)\''
    ),
}
GIVEN_BACK = (
    "import ctypes, time\nlibc = ctypes.CDLL(None)\nlibc.mmap.restype = ctypes.c_void_p\nsize = 50_003_968\n"
    "for _ in range(12):\n"
    "    at = libc.mmap(None, ctypes.c_size_t(size), 3, 0x21, -1, ctypes.c_long(0))\n"
    "    ctypes.memset(at, 1, size); libc.munmap(ctypes.c_void_p(at + 4096), ctypes.c_size_t(size - 4096))\n"
    "time.sleep(60)"
)


@pytest.mark.parametrize("bomb", attacks(MEMORY_BOMBS, "many_processes"))
async def test_a_memory_bomb_is_scored_zero_by_name(bomb: str, base_dir: Path, tmp_path: Path) -> None:
    outcome = await beside_an_honest_one(bomb, base_dir, tmp_path)
    assert (outcome.reward, outcome.exit_status) == (0.0, "ResourceLimitExceeded"), outcome
    assert "total_memory_mb is 256" in outcome.eval_report["error"]["message"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can look behind a mapping")
async def test_shared_memory_that_was_given_back_but_for_a_page_still_counts(base_dir: Path, tmp_path: Path) -> None:
    outcome = await beside_an_honest_one(f"python3 - <<'END'\n{GIVEN_BACK}\nEND", base_dir, tmp_path)
    assert (outcome.reward, outcome.exit_status) == (0.0, "ResourceLimitExceeded"), outcome
    assert "total_memory_mb is 256" in outcome.eval_report["error"]["message"]


CROWDS = {
    "sockets": (
        "import socket, time\nkept = [socket.socketpair() for _ in range(400)]\ntime.sleep(60)",
        "sockets open",
    ),
    "mappings": (
        "import mmap, time\nkept = [mmap.mmap(-1, 4096, mmap.MAP_PRIVATE, 1 + i % 2) for i in range(40_000)]\n"
        "time.sleep(60)",
        "more memory mappings than can be watched",
    ),
}


@pytest.mark.parametrize(
    "crowd", [pytest.param(name, marks=[] if name == "sockets" else pytest.mark.long) for name in CROWDS]
)
async def test_more_than_the_kernel_should_keep_for_a_trial_ends_it(crowd: str, base_dir: Path, tmp_path: Path) -> None:
    code, words = CROWDS[crowd]
    start = f"for i in $(seq 12); do python3 -c '{code}' & done; wait"
    outcome = await beside_an_honest_one(f"{HONEST}; {start}", base_dir, tmp_path)
    assert (outcome.reward, outcome.exit_status) == (0.0, "ResourceLimitExceeded"), outcome
    assert words in outcome.eval_report["error"]["message"]


async def test_a_memory_bomb_left_for_the_tests_is_scored_zero_by_name(base_dir: Path, tmp_path: Path) -> None:
    task = HostileTask(tmp_path, base_dir, **SMALL)
    (task.task / "tests" / "test.sh").write_text("echo 1 > /logs/verifier/reward.txt; bash /app/program\n")
    outcome = await task.outcome(f"cat > /app/program <<'END'\n{MEMORY_BOMBS['many_processes']}\nEND\n")
    assert (outcome.reward, outcome.exit_status) == (0.0, "ResourceLimitExceeded"), outcome


@pytest.mark.long
async def test_one_process_over_its_own_limit_goes_on_without(base_dir: Path, tmp_path: Path) -> None:
    outcome = await HostileTask(tmp_path, base_dir, **SMALL).outcome(
        f"x=$(head -c 300M /dev/zero | tr '\\0' a); {HONEST}"
    )
    assert outcome.exit_status == "Submitted", outcome


async def test_a_task_that_needs_more_memory_than_a_trial_has_is_no_fault_of_the_policy(
    base_dir: Path, tmp_path: Path
) -> None:
    task = HostileTask(tmp_path, base_dir, **SMALL)
    fill = " & ".join([FILL] * 6)
    (task.task / "environment" / "Dockerfile").write_text(f"FROM x\nWORKDIR /app\nRUN {fill} & wait\n")
    outcome = await task.outcome(HONEST)
    assert (outcome.reward, outcome.exit_status) == (None, "SandboxUnavailable"), outcome
    assert "total_memory_mb" in outcome.eval_report["error"]["message"]


@pytest.mark.long
async def test_memory_that_forked_processes_share_counts_once(base_dir: Path) -> None:
    sandbox = Sandbox(Limits.from_mapping(SMALL), base_dir)
    await sandbox.start()
    try:
        forks = (
            "import os, time\nx = bytearray(b'x' * 2) * 45_000_000\n"
            "for _ in range(6):\n    if not os.fork(): time.sleep(1.5); os._exit(0)\n"
            "for _ in range(6): os.wait()\nprint('done')"
        )
        ended = await sandbox.run('exec python3 -c "$CODE"', env={**ENV, "CODE": forks}, timeout=60)
        assert ended.stdout == "done\n", ended
    finally:
        await sandbox.close()


async def test_after_a_memory_bomb_nothing_runs_any_more(base_dir: Path) -> None:
    sandbox = Sandbox(Limits.from_mapping(SMALL), base_dir)
    await sandbox.start()
    try:
        with pytest.raises(SandboxLimitExceeded, match="MiB of memory together"):
            await sandbox.run(MEMORY_BOMBS["many_processes"], env=ENV, timeout=60)
        for again in (sandbox.run("true"), sandbox.restart()):
            with pytest.raises(SandboxLimitExceeded):
                await again
    finally:
        await sandbox.close()


DISK_BOMBS = {
    "fills_the_disk": "for d in /app /tmp /logs/agent /dev/shm /root /run; do head -c 1G /dev/zero > $d/f; done",
    "takes_every_inode": "cd /app; mkdir d; for i in $(seq 20); do seq -f $i-%g 500 | xargs touch; done 2> /dev/null",
    "fills_the_disk_and_goes_on_writing": (
        "setsid bash -c 'while :; do cat /dev/zero >> /tmp/f$RANDOM; done' > /dev/null 2>&1 & sleep 2"
    ),
    "leaves_deep_folders": (
        "for d in /logs/agent /logs/artifacts /app/out; do mkdir -p $d; cd $d; for i in $(seq 25); do"
        " mkdir $(printf 'd%.0s' {1..200}); cd d*; done; mkdir -p $(printf 'e/%.0s' {1..300}); done"
    ),
    "leaves_sparse_files": "mkdir /app/out; for d in /logs/agent /app/out; do truncate -s 60M $d/a $d/b $d/c; done",
    "leaves_odd_names": (
        "for d in /logs/agent /logs/artifacts /app/out; do mkdir -p $d; cd $d;"
        " touch -- $'\\xff' $'a\\nb' -rf '*' $'\\e[2J'; mkfifo p; ln -s / l; done"
    ),
    "leaves_folders_nobody_may_enter": "mkdir -p /app/out/x; chmod 000 /logs/* /app/out/x /app/out /logs",
    "leaves_links_as_artifacts": "ln -s / /app/out; rm -rf /logs/artifacts; ln -s /proc /logs/artifacts",
}


@pytest.mark.parametrize("bomb", attacks(DISK_BOMBS, "fills_the_disk", "leaves_odd_names"))
async def test_a_disk_bomb_is_judged_by_the_tests(bomb: str, base_dir: Path, tmp_path: Path) -> None:
    outcome = await beside_an_honest_one(bomb, base_dir, tmp_path)
    assert (outcome.reward, outcome.exit_status) == (0.0, "Submitted"), outcome
    kept = sum(path.lstat().st_blocks * 512 for path in tmp_path.rglob("*"))
    assert kept < 200 << 20


@pytest.mark.long
async def test_large_tests_fit_beside_a_full_disk(base_dir: Path, tmp_path: Path) -> None:
    task = HostileTask(tmp_path, base_dir, **{**SMALL, "disk_mb": 16})
    (task.task / "tests" / "data").write_bytes(os.urandom(50 << 20))
    outcome = await task.outcome(f"{HONEST}; {DISK_BOMBS['fills_the_disk']}")
    assert (outcome.reward, outcome.exit_status) == (1.0, "Submitted"), outcome


PROCESS_BOMBS = {
    "forks_without_end": "b() { b | b & }; b; sleep 2",
    "forks_and_detaches": "f() { setsid bash -c 'while :; do sleep 9 & done' > /dev/null 2>&1 & }; f; f; f; sleep 2",
    "starts_threads_without_end": (
        "python3 -c 'from threading import *\nwhile True: Thread(target=Event().wait, daemon=True).start()'"
    ),
    "prints_without_end": "yes; yes >&2",
    "prints_without_end_in_the_background": "yes & yes >&2 & sleep 1",
    "kills_everything": "kill -9 -1",
}


@pytest.mark.parametrize("bomb", attacks(PROCESS_BOMBS, "forks_without_end"))
async def test_a_process_bomb_is_judged_by_the_tests(bomb: str, base_dir: Path, tmp_path: Path) -> None:
    outcome = await beside_an_honest_one(bomb, base_dir, tmp_path)
    assert (outcome.reward, outcome.exit_status) == (0.0, "Submitted"), outcome


async def test_a_command_that_ignores_every_signal_ends_with_the_agents_time(base_dir: Path, tmp_path: Path) -> None:
    stay = f"{HONEST}; trap '' TERM HUP INT QUIT; (trap '' TERM; setsid sleep 1000 &) ; while :; do sleep 1; done"
    outcome = await beside_an_honest_one(stay, base_dir, tmp_path, agent_timeout=4)
    assert (outcome.reward, outcome.exit_status) == (1.0, "TimeLimitExceeded"), outcome


@pytest.mark.long
async def test_tests_that_hang_on_the_agents_work_are_scored_zero(base_dir: Path, tmp_path: Path) -> None:
    task = HostileTask(tmp_path, base_dir, **SMALL)
    toml = task.task / "task.toml"
    toml.write_text(toml.read_text().replace("[verifier]\ntimeout_sec = 60.0", "[verifier]\ntimeout_sec = 2.0"))
    outcome = await task.outcome("mkfifo /app/answer")
    assert (outcome.reward, outcome.exit_status) == (0.0, "VerifierError"), outcome


async def test_a_trial_that_is_killed_from_outside_is_discarded(base_dir: Path, tmp_path: Path) -> None:
    """What only this machine can have done - its holder is out of the policy's reach - is not the policy's fault."""
    task = HostileTask(tmp_path, base_dir, **SMALL)
    running = asyncio.create_task(task.outcome("sleep 60"))
    while not (owners := list(base_dir.glob("trial-*/owner.json"))) or "}, {" not in owners[0].read_text():
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.5)
    os.kill(int(owners[0].read_text().rpartition('"pid": ')[2].partition(",")[0]), signal.SIGKILL)
    outcome = await running
    assert (outcome.reward, outcome.exit_status) == (None, "InfraError"), outcome

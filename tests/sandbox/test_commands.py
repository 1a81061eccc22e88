"""Output, exit codes, time limits and what happens to commands that are given up."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from sandbox.channel import Channel
from sandbox.holder import HolderFailed
from sandbox.trial import Sandbox


async def test_exit_code_output_and_variables_arrive(box: Sandbox) -> None:
    ended = await box.run('echo "$A"; echo err >&2; pwd; exit 3', cwd="/tmp", env={"A": 'it\'s "a"\n$b'})
    assert (ended.return_code, ended.stdout, ended.stderr) == (3, 'it\'s "a"\n$b\n/tmp\n', "err\n")


@pytest.mark.parametrize("command", ["x" * 100_000, "echo \udcff", "echo '\n'"])
async def test_odd_command_lines_are_passed_on(box: Sandbox, command: str) -> None:
    assert (await box.run(command)).return_code in (0, 127)


async def test_a_missing_working_folder_is_an_error_of_the_command(box: Sandbox) -> None:
    ended = await box.run("echo ran", cwd="/none")
    assert ended.return_code == 1
    assert ended.stdout == ""
    assert "/none" in ended.stderr


async def test_commands_run_side_by_side(box: Sandbox) -> None:
    # Each waits for all the others to have begun.
    wait = "until [ -e /tmp/0 -a -e /tmp/1 -a -e /tmp/2 -a -e /tmp/3 ]; do sleep 0.05; done"
    commands = [f"touch /tmp/{n}; {wait}; exit {n}" for n in range(4)]
    ended = await asyncio.gather(*(box.run(text, env={"PATH": "/usr/bin"}, timeout=60) for text in commands))
    assert [one.return_code for one in ended] == [0, 1, 2, 3]


async def test_timeout_kills_the_command_and_keeps_its_output(box: Sandbox) -> None:
    env = {"PATH": "/usr/bin"}
    ended = await box.run("echo before; sleep 60 & sleep 61", env=env, timeout=0.5)
    assert (ended.return_code, ended.stdout, ended.why) == (124, "before\n", "killed after 0.5 s")
    await asyncio.sleep(0.2)
    assert (await box.run("pgrep sleep", env=env)).stdout == ""


async def test_cancelling_kills_the_command(box: Sandbox) -> None:
    env = {"PATH": "/usr/bin"}
    task = asyncio.create_task(box.run("sleep 60", env=env))
    await asyncio.sleep(0.3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0.2)
    assert (await box.run("pgrep sleep", env=env)).stdout == ""


async def test_long_output_keeps_head_and_tail(box: Sandbox) -> None:
    ended = await box.run("echo first; head -c 200000 /dev/zero | tr '\\0' x; echo last", env={"PATH": "/usr/bin"})
    assert ended.return_code == 0
    assert len(ended.stdout) < 9000
    assert ended.stdout.startswith("first\n")
    assert ended.stdout.endswith("last\n")
    assert "bytes dropped" in ended.stdout


async def test_endless_output_is_ended(box: Sandbox) -> None:
    ended = await box.run("yes", env={"PATH": "/usr/bin"}, timeout=30)
    assert ended.return_code == 137
    assert "more than 4 MiB" in ended.why


async def test_output_byte_by_byte_does_not_keep_the_server_busy(box: Sandbox) -> None:
    """Wakes are counted, not time: a busy machine makes both sides slow."""
    wakes = 0
    read = Channel._read  # pyright: ignore[reportPrivateUsage]

    def counting(channel: Channel) -> bool:
        nonlocal wakes
        wakes += 1
        return read(channel)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Channel, "_read", counting)
        ended = await box.run(
            "exec python3 -c 'import os\nwhile True: os.write(1, b\"x\")'", env={"PATH": "/usr/bin"}, timeout=1.5
        )
    assert ended.return_code == 124 and ended.stdout.count("x") > 4000
    assert wakes < 20_000


async def test_a_background_server_outlives_its_command(box: Sandbox) -> None:
    env = {"PATH": "/usr/bin"}
    server = "(until [ -e /tmp/ask ]; do sleep 0.05; echo tick; done; echo 8 > /tmp/answer) &"
    assert (await box.run(server, env=env, timeout=60)).return_code == 0
    ended = await box.run("touch /tmp/ask; until [ -s /tmp/answer ]; do sleep 0.05; done; cat /tmp/answer", env=env)
    assert ended.stdout == "8\n"


async def test_forged_status_lines_stay_within_the_phase(box: Sandbox) -> None:
    forge = "for i in $(seq 1 20); do echo 200000$i 0; echo ready; echo garbage; done > /proc/1/fd/3"
    await box.run(forge, env={"PATH": "/usr/bin"})
    await box.run("head -c 3000000 /dev/zero > /proc/1/fd/3 & sleep 0.2", env={"PATH": "/usr/bin"}, timeout=5)
    await box.restart()
    assert (await box.run("exit 5")).return_code == 5


async def test_nothing_runs_after_the_end(box: Sandbox) -> None:
    await box.close()
    with pytest.raises(HolderFailed, match="not running"):
        await box.run("true")


def first_process(base_dir: Path) -> int:
    """The process id, on this machine, of process 1 of the box's cell: the one that sees the box's control folder."""
    owner = json.loads(next(base_dir.glob("trial-*/owner.json")).read_text())[1]["pid"]
    pids = [owner]
    for pid in pids:
        children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        if Path(f"/proc/{pid}/comm").read_text() == "bwrap\n":
            return children[0]
        pids += children
    raise AssertionError(f"no bwrap below {owner}")


async def test_a_cell_whose_first_process_died_is_replaced(box: Sandbox, base_dir: Path) -> None:
    await box.run("echo kept > /tmp/kept")
    waiting = asyncio.create_task(box.run("sleep 60", env={"PATH": "/usr/bin"}))
    await asyncio.sleep(0.2)
    os.kill(first_process(base_dir), signal.SIGKILL)
    ended = await waiting
    assert ended.return_code == 137
    assert (await box.run("cat /tmp/kept", env={"PATH": "/usr/bin"})).stdout == "kept\n"


async def test_a_frozen_first_process_holds_up_nobody(box: Sandbox, base_dir: Path) -> None:
    os.kill(first_process(base_dir), signal.SIGSTOP)
    assert (await box.run("echo x", timeout=0.3)).return_code == 124
    await box.restart()
    assert (await box.run("echo x", timeout=5)).stdout == "x\n"


async def test_ended_background_processes_do_not_use_up_the_limit(box: Sandbox) -> None:
    for _ in range(3):
        await box.run("for ((i=0; i<50; i++)); do (: &) ; done; sleep 0.2", env={"PATH": "/usr/bin"})
    assert (await box.run("ls /proc | grep -cE '^[0-9]+$'", env={"PATH": "/usr/bin"})).stdout.strip() in "4 5 6"


async def test_a_command_has_no_descriptor_of_ours(box: Sandbox) -> None:
    assert (await box.run("ls /proc/self/fd", env={"PATH": "/usr/bin"})).stdout.split() == ["0", "1", "2", "3"]
    assert (await box.run("cat /proc/self/oom_score_adj", env={"PATH": "/usr/bin"})).stdout == "1000\n"

"""Whatever is cancelled and whoever dies, no process, mount or folder stays."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sandbox.leftovers import remove_leftovers
from sandbox.trial import Sandbox
from sandbox.trial_dir import process_start

ROOT = Path(__file__).resolve().parents[2]


def processes_below(base_dir: Path) -> list[int]:
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if os.fsencode(base_dir) in text:
                found.append(int(entry.name))
    return found


async def nothing_left(base_dir: Path) -> None:
    for _ in range(100):
        if not list(base_dir.glob("trial-*")) and not processes_below(base_dir):
            break
        await asyncio.sleep(0.05)
    assert list(base_dir.glob("trial-*")) == []
    assert processes_below(base_dir) == []
    assert str(base_dir) not in Path("/proc/self/mountinfo").read_text()


@pytest.mark.parametrize("delay_ms", [0, 2, 5, 10, 15, 20, 30, 40])
async def test_cancelled_start(base_dir: Path, delay_ms: int) -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    sandbox = Sandbox(base_dir=base_dir)
    task = asyncio.create_task(sandbox.start())
    await asyncio.sleep(delay_ms / 1000)
    task.cancel()
    await asyncio.wait([task])
    await sandbox.close()
    await nothing_left(base_dir)
    assert len(os.listdir("/proc/self/fd")) == descriptors


@pytest.mark.parametrize("delay_ms", [0, 3, 8, 15, 25])
async def test_cancelled_restart(base_dir: Path, delay_ms: int) -> None:
    sandbox = Sandbox(base_dir=base_dir)
    await sandbox.start()
    task = asyncio.create_task(sandbox.restart())
    await asyncio.sleep(delay_ms / 1000)
    task.cancel()
    await asyncio.wait([task])
    assert (await sandbox.run("echo usable")).stdout == "usable\n"
    await sandbox.close()
    await nothing_left(base_dir)


async def test_cancelled_command_then_close(base_dir: Path) -> None:
    sandbox = Sandbox(base_dir=base_dir)
    await sandbox.start()
    task = asyncio.create_task(sandbox.run("setsid sleep 100 & sleep 100", env={"PATH": "/usr/bin"}))
    await asyncio.sleep(0.1)
    task.cancel()
    await asyncio.wait([task])
    await sandbox.close()
    await nothing_left(base_dir)


async def test_cancelled_close_is_finished_anyway(base_dir: Path) -> None:
    sandbox = Sandbox(base_dir=base_dir)
    await sandbox.start()
    task = asyncio.create_task(sandbox.close())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    await nothing_left(base_dir)


async def test_many_trials_leave_no_descriptor_open(base_dir: Path) -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        sandboxes = [Sandbox(base_dir=base_dir) for _ in range(3)]
        await asyncio.gather(*(sandbox.start() for sandbox in sandboxes))
        await asyncio.gather(*(sandbox.run("echo x; sleep 100 &", env={"PATH": "/usr/bin"}) for sandbox in sandboxes))
        await asyncio.gather(*(sandbox.close() for sandbox in sandboxes))
    assert len(os.listdir("/proc/self/fd")) == descriptors
    await nothing_left(base_dir)


def test_a_killed_server_leaves_no_process_and_a_later_one_removes_its_folder(base_dir: Path) -> None:
    script = (
        "import asyncio, sys\nfrom pathlib import Path\nfrom sandbox.trial import Sandbox\n"
        "async def main():\n    s = Sandbox(base_dir=Path(sys.argv[1]))\n    await s.start()\n"
        "    await s.run('setsid sleep 1000 &', env={'PATH': '/usr/bin'})\n    print('up', flush=True)\n"
        "    await asyncio.sleep(1000)\nasyncio.run(main())\n"
    )
    server = subprocess.Popen([sys.executable, "-c", script, str(base_dir)], cwd=ROOT, stdout=subprocess.PIPE)
    assert server.stdout is not None
    assert server.stdout.readline() == b"up\n"
    assert remove_leftovers(base_dir) == []
    owners = json.loads(next(base_dir.glob("trial-*/owner.json")).read_text())
    assert owners[0]["pid"] == server.pid
    server.send_signal(signal.SIGKILL)
    server.wait()
    server.stdout.close()
    deadline = time.monotonic() + 5
    while processes_below(base_dir) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_below(base_dir) == []
    assert process_start(owners[1]["pid"]) != owners[1]["start"]
    assert len(remove_leftovers(base_dir)) == 1


def test_another_process_with_a_reused_id_is_left_alone(base_dir: Path) -> None:
    trial = base_dir / "trial-200001"
    trial.mkdir()
    (trial / "owner.json").write_text(json.dumps([{"pid": os.getpid(), "start": 1}, {"pid": os.getpid(), "start": 1}]))
    assert remove_leftovers(base_dir) == ["trial-200001"]

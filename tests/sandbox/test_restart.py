"""Nothing of the agent but its files meets the verifier."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

import pytest

from sandbox.limits import Limits
from sandbox.trial import Sandbox

ENV = {"PATH": "/usr/bin:/bin", "HOME": "/root"}


async def test_work_is_kept(box: Sandbox) -> None:
    await box.run("mkdir /app /data && echo a > /app/a && echo b > /data/b && echo c > /logs/agent/c", env=ENV)
    await box.restart()
    assert (await box.run("cat /app/a /data/b /logs/agent/c", env=ENV)).stdout == "a\nb\nc\n"


async def test_forged_reward_and_planted_files_are_gone(box: Sandbox) -> None:
    await box.run(
        "echo 1 > /logs/verifier/reward.txt; echo '{}' > /logs/verifier/reward.json; echo x > /tests/test.sh;"
        " echo evil > /root/.bashrc; mkdir -p /root/.local/lib/python3/site-packages;"
        " echo evil > /root/.local/lib/python3/site-packages/usercustomize.py; echo x > /dev/shm/x",
        env=ENV,
    )
    await box.restart()
    found = (await box.run("find /logs/verifier /tests /root /solution /dev/shm -mindepth 1", env=ENV)).stdout
    assert found == ""


async def test_a_background_writer_is_gone(box: Sandbox, tmp_path: Path) -> None:
    writer = "while :; do echo 1 > /logs/verifier/reward.txt; echo x >> /tmp/alive; done"
    await box.run(f"setsid bash -c '{writer}' </dev/null >/dev/null 2>&1 &", env=ENV)
    await asyncio.sleep(0.1)
    await box.restart()
    before = (await box.run("wc -c < /tmp/alive", env=ENV)).stdout
    await asyncio.sleep(0.2)
    assert (await box.run("wc -c < /tmp/alive", env=ENV)).stdout == before
    assert (await box.run("ls /logs/verifier", env=ENV)).stdout == ""


@pytest.mark.parametrize("name", ["bin", "lib64", "sbin"])
async def test_replaced_system_links_are_put_back(box: Sandbox, name: str) -> None:
    await box.run(f"mkdir /evil; rm /{name}; ln -s evil /{name}", env=ENV)
    await box.restart()
    assert (await box.run(f"readlink /{name}", env=ENV)).stdout == f"usr/{name}\n"


@pytest.mark.parametrize("name", ["tests", "root", "logs", "logs/verifier", "logs/agent", "solution"])
async def test_replaced_folders_become_real_again(box: Sandbox, name: str) -> None:
    await box.run(f"mkdir -p /app/trap/verifier; rm -rf /{name}; ln -s /app/trap /{name}", env=ENV)
    await box.restart()
    assert (await box.run(f"[ -d /{name} ] && [ ! -L /{name} ] && echo real", env=ENV)).stdout == "real\n"


async def test_locked_folders_do_not_stop_it(box: Sandbox) -> None:
    await box.run("chmod 000 /logs/verifier /logs/agent /logs /root /tests; chmod 000 /", env=ENV)
    await box.restart()
    assert (await box.run("touch /logs/verifier/reward.txt /tests/x && echo ok", env=ENV)).stdout == "ok\n"


async def test_removed_system_links_come_back_on_a_full_disk_after_the_first_process_was_lost(box: Sandbox) -> None:
    fill = "cd /tmp; seq 1 3000 | xargs touch 2>/dev/null"
    lose_cell = "head -c 3000000 /dev/zero > /proc/1/fd/3; sleep 5"
    lost = await box.run(f"rm /sbin; {fill}; {lose_cell}", env=ENV, timeout=10)
    assert lost.why == "the sandbox's first process ended"
    assert (await box.run("readlink /sbin", env=ENV)).stdout == "usr/sbin\n"


async def test_a_very_deep_tree_costs_nothing(box: Sandbox) -> None:
    await box.run("cd /root; mkdir -p $(printf 'd/%.0s' {1..1500})", env=ENV, timeout=20)
    await box.restart()
    assert (await box.run("ls -A /root", env=ENV)).stdout == ""


async def test_shared_memory_and_queues_do_not_cross(box: Sandbox) -> None:
    await box.run("ipcmk -M 1000; ipcmk -Q", env=ENV)
    await box.restart()
    assert "0x" not in (await box.run("ipcs", env=ENV)).stdout


@pytest.mark.parametrize(
    "attack",
    [
        "echo > $D",
        "ln -s /proc/self/root/usr $D",
        "mkdir -p $D/deep; ln -s / $D/deep/data; ln -s /none $D/deep/file",
        "mkdir -p $D/deep/file; echo > $D/deep/data; chmod 000 $D/deep $D",
    ],
)
async def test_further_paths_of_this_machine_come_back(attack: str, base_dir: Path) -> None:
    given = Path(tempfile.mkdtemp(prefix="given-"))
    try:
        (given / "deep" / "data").mkdir(parents=True)
        (given / "deep" / "data" / "a").write_text("a\n")
        (given / "deep" / "file").write_text("b\n")
        given.chmod(0o755)
        shown = [str(given / "deep" / "data"), str(given / "deep" / "file")]
        sandbox = Sandbox(Limits(), base_dir, shown)
        await sandbox.start()
        try:
            read = f"cat {shown[0]}/a {shown[1]}; stat -c %a /tmp"
            assert (await sandbox.run(read, env=ENV)).stdout == "a\nb\n1777\n"
            await sandbox.run(f"D={given}; mv $D /tmp/old; {attack}", env=ENV)
            await sandbox.restart()
            assert (await sandbox.run(read, env=ENV)).stdout == "a\nb\n1777\n"
            assert (await sandbox.run(f"echo > {shown[0]}/x || echo > {shown[1]}", env=ENV)).return_code != 0
        finally:
            await sandbox.close()
    finally:
        shutil.rmtree(given)

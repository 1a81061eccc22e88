"""The process that keeps a head, with small commands in the head's place."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from launcher.ray_jobs import head_process
from tests.launcher.ray_jobs.ray_cluster import alive, eventually, with_descendants

# A head whose child moves to a session of its own, as jobs do, and loses its parent.
HEAD = """
import os, subprocess, sys, time
middle = "import subprocess, sys; subprocess.Popen(['sleep', '600'], start_new_session=True)"
subprocess.run([sys.executable, "-c", middle])
open(os.path.join(sys.argv[1], "up"), "w").close()
time.sleep(600)
"""
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"


class Keeper:
    def __init__(self, folder: Path, tie: str, code: str) -> None:
        self.folder = folder
        folder.mkdir()
        self.process = subprocess.Popen(
            [sys.executable, "-I", head_process.__file__, str(folder), tie, sys.executable, "-c", code, str(folder)],
            stdin=subprocess.PIPE if tie == "tied" else subprocess.DEVNULL,
            start_new_session=True,
        )

    def family(self) -> list[psutil.Process]:
        """Once it is complete: the keeper, the head, and the orphan that the keeper has adopted."""
        eventually((self.folder / "up").exists, "the head")
        family = with_descendants(self.process.pid)
        assert [each.name() for each in family].count("sleep") == 1
        return family

    def end_of(self, family: list[psutil.Process]) -> int:
        code = self.process.wait(timeout=60)
        assert alive(family) == []
        assert not self.folder.exists()
        return code


def test_the_end_of_the_launcher_ends_the_head_and_its_orphans_and_nothing_else(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as bystander:
        keeper = Keeper(tmp_path / "folder", "tied", HEAD)
        family = keeper.family()
        assert keeper.process.stdin is not None
        keeper.process.stdin.close()  # as the kernel does for a launcher that was killed
        assert keeper.end_of(family) == 1
        assert bystander.poll() is None
        bystander.kill()


@pytest.mark.parametrize("tie", ["tied", "kept"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_too(tmp_path: Path, tie: str, number: signal.Signals) -> None:
    keeper = Keeper(tmp_path / "folder", tie, HEAD)
    family = keeper.family()
    keeper.process.send_signal(number)
    keeper.end_of(family)


def test_a_head_that_does_not_listen_is_killed_after_the_grace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Path(head_process.__file__).read_text(encoding="utf-8")
    impatient = tmp_path / "impatient.py"
    impatient.write_text(source.replace("GRACE_SECONDS = 15.0", "GRACE_SECONDS = 0.2"), encoding="utf-8")
    monkeypatch.setattr(head_process, "__file__", str(impatient))
    keeper = Keeper(tmp_path / "folder", "tied", DEAF + HEAD)
    family = keeper.family()
    keeper.process.terminate()
    keeper.end_of(family)


def test_a_head_that_ends_by_itself_takes_its_keeper_along(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path / "folder", "tied", HEAD)
    family = keeper.family()
    head = next(each for each in family if each.ppid() == keeper.process.pid and each.name() != "sleep")
    head.kill()
    assert keeper.end_of(family) == 1


def test_a_keeper_that_is_killed_tells_the_head(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path / "folder", "kept", HEAD)
    family = keeper.family()
    sleep = next(each for each in family if each.name() == "sleep")
    head = next(each for each in family[1:] if each != sleep)
    keeper.process.kill()
    keeper.process.wait()
    sleep.kill()  # nobody is left who knows of it
    eventually(lambda: alive([head]) == [], "the end of the head")

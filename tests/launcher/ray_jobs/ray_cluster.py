"""One real Ray for all tests of a session, and what tests ask it. A conftest that wants it imports `ray_cluster`."""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from launcher.ray_jobs.cluster import Cluster, cluster
from launcher.ray_jobs.job import JobSpec

REPOSITORY = Path(__file__).parents[3]
DRIVER = REPOSITORY / "tests" / "stubs" / "miles" / "train.py"
NUM_GPUS = 2  # a number that Ray keeps count of; no GPU is behind it
SOON = 60.0  # seconds that something may take before a test calls it missing

_numbers = itertools.count()
_open = ExitStack()
_users = 0
_shared: Cluster | None = None


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[Cluster]:
    """A cluster as somebody else would have started it; the same one in every folder whose conftest imports this."""
    global _users, _shared
    if _shared is None:
        # Launchers of tests find it without a token of this user; Ray's client reads the mode once for a process.
        _open.enter_context(pytest.MonkeyPatch.context()).setenv("RAY_AUTH_MODE", "disabled")
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)  # every worker would compile Ray anew
            _shared = _open.enter_context(cluster(None, num_gpus=NUM_GPUS, node_ip="127.0.0.1"))
    _users += 1
    yield Cluster(_shared.address, owned=False)
    _users -= 1
    if _users == 0:
        _shared = None
        _open.close()


def job(environment: Mapping[str, str] | None = None, *arguments: str) -> JobSpec:
    """The stand-in driver as a job with an id of its own."""
    submission_id = f"test-{os.getpid()}-{next(_numbers)}"
    return JobSpec(submission_id, (sys.executable, str(DRIVER), *arguments), environment or {}, {"kind": "test"})


def eventually(condition: Callable[[], Any], what: str) -> Any:
    """The first true answer of the condition."""
    deadline = time.monotonic() + SOON
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {SOON:g} s"
        time.sleep(0.05)
    return answer


def recorded(path: Path) -> dict[str, Any]:
    """What the stand-in driver wrote, once it has."""
    eventually(path.exists, f"{path} written")
    return json.loads(path.read_text(encoding="utf-8"))


def with_descendants(pid: int) -> list[psutil.Process]:
    """A process and all its descendants."""
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def alive(processes: list[psutil.Process]) -> list[str]:
    """What of them still runs, each in a word; one that waits for its parent to bury it does not."""
    found: list[str] = []
    for process in processes:
        try:
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{process.pid} {process.name()}")
        except psutil.NoSuchProcess:
            pass
    return found


def folder_of(head: Cluster | int | None = None) -> Path:
    """The temporary folder of an owned head (None: the shared one): its keeper's second argument."""
    owner = head or _shared
    pid = owner.pid if isinstance(owner, Cluster) else owner
    assert pid is not None
    command = psutil.Process(pid).cmdline()
    return Path(next(command[index - 1] for index, word in enumerate(command) if word in ("tied", "kept")))

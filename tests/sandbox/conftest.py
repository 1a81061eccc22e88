"""A started sandbox below a base folder of its own; afterwards nothing may be left of it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sandbox.bubblewrap import SandboxUnavailable
from sandbox.limits import Limits
from sandbox.preflight import preflight
from sandbox.trial import Sandbox


@pytest.fixture(scope="session", autouse=True)
def machine_can_run_sandboxes() -> None:
    try:
        preflight()
    except SandboxUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def base_dir() -> Iterator[Path]:
    # Not pytest's tmp_path: the trials' users cannot enter that.
    path = Path(tempfile.mkdtemp(prefix="sandbox-tests-"))
    path.chmod(0o711)
    yield path
    left = [entry.name for entry in path.iterdir() if entry.name.startswith("trial-")]
    shutil.rmtree(path)
    assert left == []


@pytest.fixture
async def box(base_dir: Path) -> AsyncIterator[Sandbox]:
    limits = Limits(disk_mb=48, inodes=2000, processes=64, file_mb=32, output_kb=8, flood_mb=4, download_mb=4)
    sandbox = Sandbox(limits, base_dir)
    await sandbox.start()
    try:
        yield sandbox
    finally:
        await sandbox.close()

from pathlib import Path

import pytest

from tests.progress.run_on_disk import RunOnDisk


@pytest.fixture
def disk(tmp_path: Path) -> RunOnDisk:
    return RunOnDisk(tmp_path / "run")

"""A shared agent server process, its tasks and the stub endpoint."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harbor_service.harbor_model_stub import ModelStub, bash
from tests.harbor_service.harbor_server_process import AgentServerProcess, write_task

BROKEN_TEST = "#!/bin/bash\nexit 1\n"


@pytest.fixture(scope="session")
def tasks_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tasks")
    write_task(root, "mkdir-1")
    write_task(root, "broken-verifier", test_sh=BROKEN_TEST)
    write_task(root, "no-verifier", test_sh=None)
    write_task(root, "bad-toml", task_toml="this is = not [toml")
    (root.parent / "outside").mkdir(exist_ok=True)
    return root


@pytest.fixture
def model() -> Iterator[ModelStub]:
    stub = ModelStub(lambda body: bash("mkdir target"))
    yield stub
    stub.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, tasks_dir: Path) -> Iterator[AgentServerProcess]:
    """Two trials at once, four seconds for an agent, half a GiB for a trial."""
    folder = tmp_path_factory.mktemp("server")
    small = ("--environment-option", 'limits={"total_memory_mb": 512}')
    process = AgentServerProcess(folder, tasks_dir, "--max-concurrent", "2", "--agent-timeout", "4", *small)
    yield process
    process.close()

"""A tiny model that writes two commands, one right and one wrong, its tasks, and one agent server for most runs."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from local_engine.config import LocalRunConfig
from tests.end_to_end.run_parts import RIGHT, SLOW, WRONG, base_config, write_prompts, write_tasks
from tests.harbor_service.harbor_server_process import AgentServerProcess
from tests.local_engine.tiny_model import make_checkpoint

TASKS = tuple(f"mkdir-{n}" for n in range(6))


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Child processes share what they compile on import: PyTorch and Harbor take 20 s without, 6 with."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        patch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path_factory.mktemp("pycache")))
        yield


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("acting") / "model", likely={RIGHT: 12.0, WRONG: 12.0}, std=0.05)


@pytest.fixture(scope="session")
def slow_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("slow") / "model", likely={SLOW: 20.0}, std=0.05)


@pytest.fixture(scope="session")
def tasks_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tasks(tmp_path_factory.mktemp("tasks"), *TASKS)


@pytest.fixture(scope="session")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_prompts(tmp_path_factory.mktemp("rows") / "rows.jsonl", *TASKS)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, tasks_dir: Path) -> Iterator[AgentServerProcess]:
    folder = tmp_path_factory.mktemp("server")
    options = '{"max_turns": 2}'
    process = AgentServerProcess(folder, tasks_dir, "--max-concurrent", "8", "--agent-options", options)
    yield process
    process.close()


@pytest.fixture
def own_server(tmp_path: Path, checkpoint: Path, tasks_dir: Path, prompts: Path) -> LocalRunConfig:
    """A run that starts its own agent server."""
    return base_config(tmp_path / "run", checkpoint, tasks_dir, prompts)


@pytest.fixture(scope="session")
def shared_server(
    tmp_path_factory: pytest.TempPathFactory,
    checkpoint: Path,
    tasks_dir: Path,
    prompts: Path,
    server: AgentServerProcess,
) -> LocalRunConfig:
    """A run that uses the server above; tests change the save folder."""
    config = base_config(tmp_path_factory.mktemp("unused"), checkpoint, tasks_dir, prompts)
    return replace(config, agent_server_url=server.url)

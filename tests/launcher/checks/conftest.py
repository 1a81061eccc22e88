from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harbor_service.harbor_server_process import AgentServerProcess, write_task
from tests.launcher.ray_jobs.ray_cluster import ray_cluster

__all__ = ["ray_cluster"]


@pytest.fixture
def rows(tmp_path: Path) -> Callable[..., Path]:
    def write(*ids: str) -> Path:
        path = tmp_path / "rows.jsonl"
        lines = [json.dumps({"prompt": "p", "metadata": {"instance_id": i, "agent_name": "shell"}}) for i in ids]
        path.write_text("".join(f"{line}\n" for line in lines))
        return path

    return write


@pytest.fixture(scope="session")
def agent_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentServerProcess]:
    """The real one, without a token: tasks `a` and `b`, and `bad`, which Harbor cannot load."""
    folder = tmp_path_factory.mktemp("agent-server")
    for name in ("a", "b"):
        write_task(folder / "tasks", name)
    write_task(folder / "tasks", "bad", task_toml="this is = not [toml")
    process = AgentServerProcess(folder, folder / "tasks", "--max-concurrent", "32", "--agent-timeout", "5400")
    yield process
    process.close()

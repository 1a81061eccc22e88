"""The run's own agent server gets what trials need from the environment, and no secret."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from launcher.secrets import SECRET_SUFFIXES
from local_engine.agent_server_process import AgentServerProcess


def test_no_secret_of_ours_reaches_the_agent_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"CANARY{suffix}" for suffix in SECRET_SUFFIXES] + ["canary_password", "PASSWORD"]
    for name in names:
        monkeypatch.setenv(name, "canary-value")
    monkeypatch.setenv("CANARY_FOLDER", "/kept")
    (tmp_path / "tasks").mkdir()

    async def environment() -> str:
        server = AgentServerProcess(
            tasks_dir=tmp_path / "tasks",
            work_dir=tmp_path / "work",
            max_concurrent=1,
            agent_timeout=60.0,
            agent_options={},
            warn=lambda text: pytest.fail(text),
        )
        async with server:
            return await asyncio.to_thread(Path(f"/proc/{server.pid}/environ").read_text)

    seen = asyncio.run(environment())
    assert "canary-value" not in seen
    assert "CANARY_FOLDER=/kept" in seen

"""A server that is shutting down turns new trials away, and says so in a way that a caller may act on."""

from pathlib import Path

import httpx

from harbor_service.environments import environment_config
from harbor_service.routes import make_app
from harbor_service.settings import Settings
from harbor_service.task_store import TaskStore
from harbor_service.trial_desk import TrialDesk
from harbor_service.trial_runner import TrialRunner
from tests.harbor_service.harbor_server_process import run_body, write_task


async def test_a_trial_that_is_turned_away_has_not_started_and_may_be_asked_for_again(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks"
    write_task(tasks, "t")
    runner = TrialRunner(TaskStore(tasks), environment_config("local"), tmp_path / "trials", 60.0, 60.0)
    desk = TrialDesk(1)
    await desk.close("the server is shutting down", 1.0)
    app = make_app(Settings(harbor_tasks_dir=tasks, environment="local"), runner, desk)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://agents") as client:
        reply = await client.post("/run", json=run_body("t", agent_name="nop"))
    assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
    assert not (tmp_path / "trials").exists()

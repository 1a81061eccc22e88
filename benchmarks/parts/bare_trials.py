"""The other side of benchmarks/agent_server.py: Harbor's trials in a plain loop, in a process of its own, no server.

Reads one JSON object a line ({"agent", "base_url", "trials", "at_once"}), runs that many trials and answers one
({"seconds", "rewards"}). The loop restarts the sandbox before the verifier, as the server does.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from harbor.models.trial.config import TaskConfig, TrialConfig
from harbor.trial.hooks import TrialEvent, TrialHookEvent
from harbor.trial.trial import Trial

from harbor_service.agents import agent_config
from harbor_service.environments import environment_config
from harbor_service.run_request import RunRequest


async def one_trial(task: Path, trials_dir: Path, request: RunRequest) -> Any:
    config = TrialConfig(
        task=TaskConfig(path=task),
        trials_dir=trials_dir,
        agent=agent_config(request, {}, agent_timeout=60.0, setup_timeout=60.0),
        environment=environment_config("local"),
    )
    trial = await Trial.create(config)

    async def fresh_processes(event: TrialHookEvent) -> None:
        del event
        environment: Any = trial.agent_environment
        await environment.restart()

    trial.add_hook(TrialEvent.VERIFICATION_START, fresh_processes)
    result = await trial.run()
    return result.verifier_result.rewards if result.verifier_result is not None else None


async def many(task: Path, trials_dir: Path, order: dict[str, Any]) -> dict[str, Any]:
    request = RunRequest(instance_id=task.name, agent_name=order["agent"], base_url=order["base_url"])
    places = asyncio.Semaphore(order["at_once"])

    async def one() -> Any:
        async with places:
            return await one_trial(task, trials_dir, request)

    began = time.perf_counter()
    rewards = await asyncio.gather(*(one() for _ in range(order["trials"])))
    return {"seconds": time.perf_counter() - began, "rewards": rewards}


async def serve(task: Path, trials_dir: Path) -> None:
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(await many(task, trials_dir, json.loads(line))), flush=True)


if __name__ == "__main__":
    trials = Path(sys.argv[2])
    trials.mkdir()
    # To a file, at the server's own level, so that both sides write alike.
    logging.basicConfig(level=logging.INFO, filename=trials / "loop.log")
    for name in ("httpx", "harbor.utils.logger"):
        logging.getLogger(name).setLevel(logging.WARNING)
    asyncio.run(serve(Path(sys.argv[1]), trials))

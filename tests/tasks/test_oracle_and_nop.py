"""In a real Harbor trial in our sandbox the oracle gets 1 and an agent that does nothing gets 0, for every family."""

import asyncio
from pathlib import Path

import pytest
from harbor.models.trial.config import TrialConfig
from harbor.trial.hooks import TrialEvent, TrialHookEvent
from harbor.trial.trial import Trial

from sandbox.environment import LocalEnvironment
from tasks.families import FAMILIES
from tasks.folder import write_task
from tasks.words import SPLITS


async def reward(task: Path, agent: dict[str, str], trials: Path) -> float:
    config = TrialConfig.model_validate(
        {
            "task": {"path": str(task)},
            "trials_dir": str(trials),
            "agent": agent,
            "environment": {"import_path": "sandbox.environment:LocalEnvironment"},
        }
    )
    trial = await Trial.create(config)

    async def restart(_: TrialHookEvent) -> None:
        environment = trial.agent_environment
        assert isinstance(environment, LocalEnvironment)
        await environment.restart()

    trial.add_hook(TrialEvent.VERIFICATION_START, restart)
    result = await trial.run()
    assert result.exception_info is None, result.exception_info
    assert result.verifier_result is not None and result.verifier_result.rewards is not None
    return float(result.verifier_result.rewards["reward"])


@pytest.mark.parametrize("family", FAMILIES)
def test_oracle_gets_one_and_nop_gets_zero(family: str, tmp_path: Path) -> None:
    async def both_splits() -> None:
        for split in SPLITS:
            task = tmp_path / "tasks" / write_task(tmp_path / "tasks", family, split, 0, partial_credit=True)
            agents = [{"name": "oracle"}, {"name": "nop"}]
            rewards = await asyncio.gather(*(reward(task, agent, tmp_path / "trials") for agent in agents))
            assert rewards == [1.0, 0.0], task.name

    asyncio.run(both_splits())


def test_a_reward_planted_by_the_agent_is_not_paid(tmp_path: Path) -> None:
    task = tmp_path / "tasks" / write_task(tmp_path / "tasks", "chmod", "train", 0)
    agent = {"import_path": "tests.tasks.forging_agent:ForgingAgent"}
    assert asyncio.run(reward(task, agent, tmp_path / "trials")) == 0

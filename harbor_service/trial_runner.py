"""One Harbor trial: its configuration, the break between agent and verifier, its verdict."""

# pyright: reportMissingTypeStubs=false
# Harbor is typed but has no marker file that says so.

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from harbor.models.task.verifier_mode import VerifierEnvironmentMode
from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
from harbor.trial.hooks import TrialEvent, TrialHookEvent
from harbor.trial.trial import Trial

from harbor_service.agents import agent_class, agent_config, counts_model_calls, is_imported, refused_agents
from harbor_service.environments import LOCAL_IMPORT_PATH, UNSAFE_IMPORT_PATH
from harbor_service.run_request import MODEL_FREE, RunRequest
from harbor_service.sandbox_lifetime import with_lifetime
from harbor_service.task_rules import refuse_unfit
from harbor_service.task_store import TaskStore, TaskSummary
from harbor_service.trial_folders import TrialFolders
from harbor_service.verdict import verdict
from trajectory.judge import judge_trial
from trajectory.outcome import Outcome, discarded

_logger = logging.getLogger(__name__)


@runtime_checkable
class Restartable(Protocol):
    """An environment that can end every process and come back with the same files."""

    async def restart(self) -> None: ...


@dataclass(frozen=True)
class TrialRunner:
    """What all trials of a server have in common."""

    tasks: TaskStore
    environment: EnvironmentConfig
    folders: TrialFolders
    agent_timeout: float  # seconds
    setup_timeout: float  # seconds
    agent_options: Mapping[str, Any] = field(default_factory=dict[str, Any])  # under the record's own

    async def agent_of(self, request: RunRequest) -> AgentConfig:
        """Harbor's agent configuration. Raises BadAgentOptions."""
        name = request.agent_name
        if name not in MODEL_FREE and not is_imported(name):
            # terminus-2 brings LiteLLM: seconds, in which the other trials go on.
            await asyncio.to_thread(agent_class, name)
        return agent_config(request, self.agent_options, self.agent_timeout, self.setup_timeout, local=self._is_local)

    async def refused_agents(self, names: Iterable[str]) -> dict[str, str]:
        """Those of `names` that no trial can have here, and why."""
        return await asyncio.to_thread(refused_agents, names, self.agent_options, local=self._is_local)

    def longest_trial(self, tasks: TaskSummary) -> float:
        """Seconds that the longest trial may take, infinite where a task's limit is."""
        return tasks.build_seconds + self.setup_timeout + self.agent_timeout * tasks.steps + tasks.verifier_seconds

    async def run(
        self, folder: Path, request: RunRequest, agent: AgentConfig, trial_name: str | None = None
    ) -> Outcome:
        """Run one trial of the task in `folder` and judge it; only cancellation is raised."""
        trial_name = trial_name or self.folders.new_name(folder.name)
        created = False
        try:
            self.folders.claim(trial_name)
        except OSError as error:  # no fault of the task's, as Harbor's own would look
            return discarded("SandboxUnavailable", reason=f"no folder for the trial: {error}")
        try:
            trial = await Trial.create(await self._config(folder, request, agent, trial_name))
            refuse_unfit(trial.task.config)
            created = True
            trial.add_hook(TrialEvent.VERIFICATION_START, _fresh_processes(trial))
            trial.add_hook(TrialEvent.CANCEL, _stop_sandbox(trial))
            result = await trial.run()
        except Exception as error:  # agents, providers and hooks raise what they like; none may end the server
            _logger.warning("%s: %s", folder.name, error, exc_info=True)
            return await self._failed(folder, error, created)
        finally:
            self.folders.ended(trial_name)
        name = request.agent_name
        return verdict(result, uses_model=name not in MODEL_FREE, counts_calls=counts_model_calls(name))

    @property
    def _is_local(self) -> bool:
        return self.environment.import_path in (LOCAL_IMPORT_PATH, UNSAFE_IMPORT_PATH)

    async def _config(self, folder: Path, request: RunRequest, agent: AgentConfig, trial_name: str) -> TrialConfig:
        stop, delete = request.sandbox_auto_stop_minutes, request.sandbox_auto_delete_minutes
        longest = self.longest_trial(await asyncio.to_thread(self.tasks.summary))
        return TrialConfig(
            task=TaskConfig(path=folder),
            trial_name=trial_name,
            trials_dir=self.folders.root,
            agent=agent,
            environment=with_lifetime(self.environment, stop, delete, longest),
        )

    async def _failed(self, folder: Path, error: Exception, created: bool) -> Outcome:
        reason = None if created else await asyncio.to_thread(self.tasks.why_broken, folder)
        return judge_trial(
            reward=None,
            exception_type="TaskBroken" if reason else type(error).__name__,
            exception_message=reason or str(error)[:500],
            started=created,
        )


def _fresh_processes(trial: Trial) -> Any:
    """Nothing the agent left running meets the verifier."""

    async def restart(event: TrialHookEvent) -> None:
        separate = event.result.verifier_environment_mode is VerifierEnvironmentMode.SEPARATE
        if not separate and isinstance(trial.agent_environment, Restartable):
            await trial.agent_environment.restart()

    return restart


def _stop_sandbox(trial: Trial) -> Any:
    """A cancelled trial's files are worth nothing: its sandbox ends before Harbor tries to fetch them."""

    async def stop(event: TrialHookEvent) -> None:
        del event
        if isinstance(trial.agent_environment, Restartable):
            await trial.agent_environment.stop(delete=True)

    return stop

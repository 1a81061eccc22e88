"""Whether tasks are fit for training: their own solution earns 1, doing nothing earns 0."""

# pyright: reportMissingTypeStubs=false
# Harbor is typed but has no marker file that says so.

import asyncio
import re
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from harbor.models.task.task import Task

from harbor_service.run_request import RunRequest
from harbor_service.trial_runner import TrialRunner
from trajectory.outcome import Outcome

_SOLUTION_MISSING = ("Solution script not found", "No OS-compatible solution script found")
_VERIFIER_STATUSES = ("VerifierError", "VerifierUnavailable")
_BUILD_ERRORS = ("SandboxBuildFailedError", "EnvironmentStartTimeoutError", "HealthcheckError")
_LOG_TAIL = 300  # characters


class Fault(StrEnum):
    """What can be wrong with a task."""

    BROKEN_FOLDER = "broken folder"
    BUILD_FAILS = "build fails"
    """Its environment cannot be made, or not with this `--environment`."""
    NO_SOLUTION = "no solution"
    VERIFIER_BROKEN = "verifier broken"
    ORACLE_FAILS = "oracle fails"
    NOP_PASSES = "nop passes"
    NOT_CHECKED = "not checked"
    """The sandbox or the server, not the task, is why there is no result."""


_NO_SANDBOX = (Fault.BROKEN_FOLDER, Fault.BUILD_FAILS, Fault.NOT_CHECKED)  # a second trial would end the same way


@dataclass(frozen=True)
class Finding:
    """One fault of one task, with a sentence."""

    fault: Fault
    reason: str


class TaskCheck:
    """Runs the oracle and the nop agent over tasks, `max_concurrent` trials at once."""

    def __init__(self, runner: TrialRunner, max_concurrent: int, *, keep_trials: bool) -> None:
        self._runner = runner
        self._max_concurrent = max_concurrent
        self._keep_trials = keep_trials

    async def run(self, instance_ids: Iterable[str], on_checked: Callable[[str, list[Finding]], None]) -> None:
        """Check each task once and report it with its findings, none where all is well; in the order they end.

        When cancelled, returns once the sandboxes of all running trials are gone.
        """
        waiting = iter(instance_ids)

        async def work() -> None:
            for instance_id in waiting:
                on_checked(instance_id, await self._check(instance_id))

        async with asyncio.TaskGroup() as group:
            for _ in range(self._max_concurrent):
                group.create_task(work())

    async def _check(self, instance_id: str) -> list[Finding]:
        folder = self._runner.tasks.find(instance_id)
        if folder is None:
            return [Finding(Fault.BROKEN_FOLDER, "the folder is gone")]
        if reason := await asyncio.to_thread(self._runner.tasks.why_broken, folder):
            return [Finding(Fault.BROKEN_FOLDER, reason)]
        findings: list[Finding] = []
        if await asyncio.to_thread(_has_no_solution, folder):
            findings.append(Finding(Fault.NO_SOLUTION, "there is no solution/solve.sh to show that it can be solved"))
        else:
            findings += await self._oracle(folder)
        if any(finding.fault in _NO_SANDBOX for finding in findings):
            return findings
        found = {finding.fault for finding in findings}
        return findings + [finding for finding in await self._nop(folder) if finding.fault not in found]

    async def _oracle(self, folder: Path) -> list[Finding]:
        outcome = await self._trial(folder, "oracle")
        said = self._solution_said(outcome)
        self._forget(outcome)
        if _error(outcome).startswith(_SOLUTION_MISSING):
            return [Finding(Fault.NO_SOLUTION, _error(outcome))]
        if outcome.exit_status == "TimeLimitExceeded":
            limit = f"{self._runner.agent_timeout:g}"
            return [Finding(Fault.ORACLE_FAILS, f"the solution did not end within {limit} seconds{said}")]
        if problem := _no_verdict(outcome, "with the solution"):
            return [problem]
        if outcome.reward != 1.0:
            return [Finding(Fault.ORACLE_FAILS, f"the solution earned {outcome.reward:g} instead of 1{said}")]
        return []

    async def _nop(self, folder: Path) -> list[Finding]:
        outcome = await self._trial(folder, "nop")
        self._forget(outcome)
        if problem := _no_verdict(outcome, "with nothing done"):
            return [problem]
        if outcome.reward != 0.0:
            return [Finding(Fault.NOP_PASSES, f"doing nothing earned {outcome.reward:g} instead of 0")]
        return []

    async def _trial(self, folder: Path, agent_name: str) -> Outcome:
        request = RunRequest(instance_id=folder.name, agent_name=agent_name)
        return await self._runner.run(folder, request, await self._runner.agent_of(request))

    def _solution_said(self, outcome: Outcome) -> str:
        """What a solution that failed left behind: its exit code and the end of its output."""
        logs = self._trial_dir(outcome)
        if logs is None:
            return ""
        code, text = (_read(logs / "agent" / name) for name in ("exit-code.txt", "oracle.txt"))
        said = f"; solve.sh ended with code {code}" if code else ""
        return said + (f": {text[-_LOG_TAIL:]}" if said and text else "")

    def _forget(self, outcome: Outcome) -> None:
        trial_dir = self._trial_dir(outcome)
        if trial_dir is not None and not self._keep_trials:
            shutil.rmtree(trial_dir, ignore_errors=True)

    def _trial_dir(self, outcome: Outcome) -> Path | None:
        name: Any = outcome.eval_report.get("trial")
        return self._runner.folders.root / name if isinstance(name, str) else None


def _has_no_solution(folder: Path) -> bool:
    task = Task(folder)
    return not task.has_steps and task.paths.discovered_solve_path_for(task.config.environment.os) is None


def _no_verdict(outcome: Outcome, when: str) -> Finding | None:
    if outcome.exit_status in _VERIFIER_STATUSES:
        return Finding(Fault.VERIFIER_BROKEN, f"{when}: {_error(outcome) or _unusable(outcome)}")
    if outcome.exit_status == "TaskBroken":
        return Finding(Fault.BROKEN_FOLDER, _error(outcome))
    if _error_entry(outcome).get("type") in _BUILD_ERRORS:
        return Finding(Fault.BUILD_FAILS, _error(outcome))
    if outcome.discard:
        return Finding(Fault.NOT_CHECKED, f"{outcome.exit_status}: {_error(outcome)}")
    return None


def _unusable(outcome: Outcome) -> str:
    names = ", ".join(outcome.eval_report.get("rewards") or ()) or "nothing"
    return f"the reward must be one number or one named reward, the tests gave {names}"


def _error(outcome: Outcome) -> str:
    text = str(_error_entry(outcome).get("message") or outcome.eval_report.get("reason") or "")
    # What lies in the trial's folder is named without the folder, which may be gone by now.
    return re.sub(rf"/\S*/{re.escape(str(outcome.eval_report.get('trial')))}/", "", text)


def _error_entry(outcome: Outcome) -> dict[str, Any]:
    return outcome.eval_report.get("error") or {}


def _read(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace").strip()
    return ""

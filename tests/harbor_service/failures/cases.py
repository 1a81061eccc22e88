"""One case for each row of the exit status table: what provokes it, and what the sample must say."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.harbor_service.failures.faulty_environment import FAULT, PLANTED
from tests.harbor_service.harbor_model_stub import Reply, bash
from tests.harbor_service.harbor_server_process import MKDIR_TEST, write_task
from trajectory import exit_status
from trajectory.exit_status import STATUSES

AGENT_TIMEOUT = 6.0  # seconds, the server's; two cases use them up, for all others they must do on a busy machine
SETUP_TIMEOUT = 1.0
_AGENTS = "tests.harbor_service.failures.failing_agents"
_TOML = (
    'schema_version = "1.2"\n[task]\nname = "test/case"\n[verifier]\ntimeout_sec = {verifier}\n'
    "[environment]\nbuild_timeout_sec = {build}\nallow_internet = false\n{more}"
)


@dataclass(frozen=True)
class Case:
    """A trial whose ending is planted; `replies` are the model's, the last one repeated."""

    status: str
    reward: float | None
    exception: str | None = None  # what Harbor must have recorded
    replies: tuple[Reply, ...] = (bash("mkdir target"),)
    agent: str = "shell"
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    fault: dict[str, str] = field(default_factory=dict[str, str])
    test_sh: str | None = MKDIR_TEST
    dockerfile: str = "FROM ubuntu:24.04\nWORKDIR /app\n"
    toml: str = _TOML.format(verifier=20.0, build=30.0, more="")
    spoil: Callable[[Path], Any] = lambda folder: None  # changes the task's folder

    def write(self, tasks_dir: Path, name: str) -> None:
        """The task's folder; its instruction is its name, by which the model's stub knows what to say."""
        write_task(tasks_dir, name, test_sh=self.test_sh, task_toml=self.toml)
        folder = tasks_dir / name
        (folder / "instruction.md").write_text(f"case {name}")
        (folder / "environment" / "Dockerfile").write_text(self.dockerfile)
        (folder / FAULT).write_text(json.dumps(self.fault))
        self.spoil(folder)


def _planted(status: str, reward: float | None, name: str) -> Case:
    """The agent acts as the task wants, then its sandbox raises: the verifier gives 1."""
    return Case(status, reward, name, (bash(f"mkdir target {PLANTED}"),), fault={"command": name})


def _verifier(name: str, script: str, timeout: float = 20.0) -> Case:
    toml = _TOML.format(verifier=timeout, build=30.0, more="")
    return Case("VerifierError", 0.0, name, test_sh=f"#!/bin/bash\n{script}\n", toml=toml)


def _endpoint(reply: Reply, replies: tuple[Reply, ...] = ()) -> Case:
    return Case("ModelEndpointFailed", None, "ModelEndpointFailed", (*replies, reply))


# Endings without an exception, by the status that they show.
BY_STATUS: dict[str, Case] = {
    "CommandSucceeded": Case("CommandSucceeded", 1.0),
    "Submitted": Case(
        "Submitted",
        0.0,
        replies=(bash("mkdir wrong"), bash("submit")),
        options={"end_on_success": False, "submit_command": "submit"},
    ),
    "TurnLimitExceeded": Case("TurnLimitExceeded", 0.0, replies=(bash("false"),), options={"max_turns": 2}),
    "Unreported": Case("Unreported", 1.0, agent=f"{_AGENTS}:QuietAgent"),
    "NeverRan": Case("NeverRan", None, agent=f"{_AGENTS}:IdleAgent"),
    "InfraError": _planted("InfraError", None, "KeyError"),
}

# Rows with an ending of their own; every other row is planted by `cases`.
_OWN: dict[str, Case] = {
    # What the agent did before counts for nothing; a real bomb is in test_run_route.py.
    "SandboxLimitExceeded": _planted("ResourceLimitExceeded", 0.0, "SandboxLimitExceeded"),
    "AgentTimeoutError": Case(
        "TimeLimitExceeded", 1.0, "AgentTimeoutError", (bash("mkdir target; false"), Reply(delay=30))
    ),
    "ContextLengthExceededError": Case(
        "SequenceLengthLimitExceeded",
        1.0,
        "ContextLengthExceededError",
        (bash("mkdir target; false"), Reply(status=400, body="maximum context length is 2048 tokens")),
    ),
    "OutputLengthExceededError": Case(
        "OutputLengthExceeded", 0.0, "OutputLengthExceededError", (Reply("cut", finish_reason="length"),)
    ),
    "RewardFileNotFoundError": _verifier("RewardFileNotFoundError", "exit 1"),
    "RewardFileEmptyError": _verifier("RewardFileEmptyError", ": > /logs/verifier/reward.txt"),
    "VerifierOutputParseError": _verifier("VerifierOutputParseError", "echo good > /logs/verifier/reward.txt"),
    "VerifierTimeoutError": _verifier("VerifierTimeoutError", "sleep 600", timeout=1.0),
    "SandboxBuildFailedError": Case(
        "SandboxUnavailable", None, "SandboxBuildFailedError", dockerfile="FROM ubuntu:24.04\nRUN exit 1\n"
    ),
    "EnvironmentStartTimeoutError": Case(
        "SandboxUnavailable",
        None,
        "EnvironmentStartTimeoutError",
        dockerfile="FROM ubuntu:24.04\nRUN sleep 600\n",
        toml=_TOML.format(verifier=20.0, build=1.0, more=""),
    ),
    "HealthcheckError": Case(
        "SandboxUnavailable",
        None,
        "HealthcheckError",
        toml=_TOML.format(
            verifier=20.0,
            build=30.0,
            more='[environment.healthcheck]\ncommand = "false"\nretries = 1\ninterval_sec = 0.1\n',
        ),
    ),
    "AgentSetupTimeoutError": Case(
        "SandboxUnavailable", None, "AgentSetupTimeoutError", agent=f"{_AGENTS}:SlowSetupAgent"
    ),
    "SandboxUnavailable": Case("SandboxUnavailable", None, "SandboxUnavailable", fault={"start": "SandboxUnavailable"}),
    "TaskBroken": Case("TaskBroken", None, "TaskBroken", toml="this is = not [toml"),
    "AddTestsDirError": Case("VerifierUnavailable", None, "AddTestsDirError", fault={"upload": "PermissionError"}),
    "DownloadVerifierDirError": Case(
        "VerifierUnavailable", None, "DownloadVerifierDirError", fault={"download": "PermissionError"}
    ),
    "ModelEndpointFailed": _endpoint(Reply(status=500, body="boom")),
}

# More ways into rows that have one already.
FURTHER: dict[str, Case] = {
    "endpoint-503-later": _endpoint(Reply(status=503, body="busy"), (bash("mkdir target; false"),)),
    "endpoint-401": _endpoint(Reply(status=401, body="who are you")),
    "endpoint-not-json": _endpoint(Reply(body="not json")),
    "policy-fault-without-reward": Case(
        "TimeLimitExceeded", 0.0, "AgentTimeoutError", (bash("false"), Reply(delay=30)), test_sh="#!/bin/bash\nexit 1\n"
    ),
    "create-raises": Case("SandboxUnavailable", None, "RuntimeError", fault={"create": "RuntimeError"}),
    "start-raises": Case("SandboxUnavailable", None, "RuntimeError", fault={"start": "RuntimeError"}),
    "no-verifier": Case("TaskBroken", None, "TaskBroken", test_sh=None),
    "bad-instruction": Case(
        "TaskBroken", None, "TaskBroken", spoil=lambda folder: (folder / "instruction.md").write_bytes(b"\xff")
    ),
}


def exception_rows() -> dict[str, str]:
    """Every exception of the table with its status, as the module holds them."""
    tables = (
        exit_status.POLICY_FAULTS,
        exit_status.RESOURCE_FAULTS,
        exit_status.VERIFIER_FAULTS,
        exit_status.SANDBOX_FAULTS,
        exit_status.TASK_FAULTS,
        exit_status.VERIFIER_TRANSFER_FAULTS,
        exit_status.MODEL_ENDPOINT_FAULTS,
    )
    return {name: status for table in tables for name, status in table.items()}


def trial_cases() -> dict[str, Case]:
    """All cases that end in a trial, by the name of their task; a row of the table that has none is planted."""
    cases = {f"status-{name}": case for name, case in BY_STATUS.items()} | FURTHER
    for name, status in exception_rows().items():
        if name in _OWN:
            case = _OWN[name]
        elif name in exit_status.TASK_FAULTS:
            case = Case(status, None, name, fault={"start": name})
        else:
            case = _planted(status, 1.0 if STATUSES[status].worth is exit_status.Worth.SCORED else None, name)
        cases[f"row-{name}"] = case
    return cases

"""Real trials (TrialRunner, Harbor, sandbox, verifier) in which the oracle's solution is an attack."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harbor_service.environments import environment_config
from harbor_service.run_request import RunRequest
from harbor_service.task_store import TaskStore
from harbor_service.trial_folders import TrialFolders
from harbor_service.trial_runner import TrialRunner
from trajectory.outcome import Outcome

TASK_TOML = """schema_version = "1.2"
artifacts = ["/app/out"]
[agent]
timeout_sec = 60.0
[verifier]
timeout_sec = 60.0
[environment]
build_timeout_sec = 60.0
"""
# What a task's tests do: a shell script with the usual tools, and Python. The pause lets a writer win who is there.
TEST_SH = """#!/bin/bash
cd /app
if [ "$(cat answer 2>/dev/null)" = right ] && python3 /tests/check.py; then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
sleep 0.2
"""
CHECK_PY = (
    "import json, pathlib\nassert json.loads(json.dumps(pathlib.Path('/app/answer').read_text())) == 'right\\n'\n"
)

PAYLOAD = """cat > /app/payload <<'END'
#!/bin/sh
setsid sh -c 'while :; do echo 1 > /logs/verifier/reward.txt; sleep 0.01; done' > /dev/null 2>&1 < /dev/null &
END
chmod 755 /app/payload
"""
"""Makes /app/payload: whoever runs it while the tests run is paid."""


def attacks(table: Mapping[str, str], *short: str) -> list[Any]:
    """The rows of a table as parameters named after their keys; all but the `short` ones are long tests."""
    assert set(short) <= set(table)
    marks = {name: [] if name in short else [pytest.mark.long] for name in table}
    return [pytest.param(text, id=name, marks=marks[name]) for name, text in table.items()]


class HostileTask:
    """One task and the runner for it; `outcome(attack)` is the answer of POST /run to a trial of that attack."""

    def __init__(self, folder: Path, base_dir: Path, agent_timeout: float = 60, **limits: int) -> None:
        self.trials_dir = folder / "trials"
        self.tasks_dir = folder / "tasks"
        self.trials_dir.mkdir(parents=True)
        self.task = self.tasks_dir / "right-answer"
        for part in ("environment", "tests", "solution"):
            (self.task / part).mkdir(parents=True)
        (self.task / "task.toml").write_text(TASK_TOML)
        (self.task / "instruction.md").write_text("Write right into /app/answer.\n")
        (self.task / "environment" / "Dockerfile").write_text("FROM ubuntu:24.04\nWORKDIR /app\n")
        (self.task / "tests" / "test.sh").write_text(TEST_SH)
        (self.task / "tests" / "check.py").write_text(CHECK_PY)
        options = [f"base_dir={base_dir}", f"limits={json.dumps(limits)}"]
        self.runner = TrialRunner(
            tasks=TaskStore(self.tasks_dir),
            environment=environment_config("local", options),
            folders=TrialFolders(self.trials_dir, keep_seconds=math.inf, keep_bytes=math.inf),
            agent_timeout=agent_timeout,
            setup_timeout=60,
        )

    async def outcome(self, attack: str) -> Outcome:
        self.prepare(attack)
        return await self.run()

    def prepare(self, attack: str) -> None:
        (self.task / "solution" / "solve.sh").write_text(f"#!/bin/bash\n{attack}\ntrue\n")

    async def run(self) -> Outcome:
        request = RunRequest(instance_id=self.task.name, agent_name="oracle")
        return await self.runner.run(self.task, request, await self.runner.agent_of(request))

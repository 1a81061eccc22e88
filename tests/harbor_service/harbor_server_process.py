"""The real agent server as a process of its own, and task folders for it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).parents[2]
MKDIR_TEST = "#!/bin/bash\nif [ -d /app/target ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n"


SOLUTION = "#!/bin/bash\nmkdir /app/target\n"


def write_task(
    root: Path,
    name: str,
    *,
    test_sh: str | None = MKDIR_TEST,
    task_toml: str | None = None,
    solve_sh: str | None = SOLUTION,
    dockerfile: str = "FROM ubuntu:24.04\nWORKDIR /app\n",
) -> str:
    """A task that wants the folder /app/target; None leaves verifier or solution out. Answers its instance_id."""
    folder = root / name
    for part in ("environment", "tests", "solution"):
        (folder / part).mkdir(parents=True)
    (folder / "task.toml").write_text(
        task_toml
        or f'schema_version = "1.2"\n[task]\nname = "test/{name}"\n[agent]\ntimeout_sec = 60.0\n'
        "[verifier]\ntimeout_sec = 20.0\n[environment]\nbuild_timeout_sec = 30.0\nallow_internet = false\n"
    )
    (folder / "instruction.md").write_text("Create the folder target.\n")
    (folder / "environment" / "Dockerfile").write_text(dockerfile)
    if test_sh is not None:
        (folder / "tests" / "test.sh").write_text(test_sh)
    if solve_sh is not None:
        (folder / "solution" / "solve.sh").write_text(solve_sh)
    return name


class AgentServerProcess:
    """`agent_server.py` on a free port; `environ` and `flags` come on top."""

    def __init__(self, folder: Path, tasks_dir: Path, *flags: str, environ: dict[str, str] | None = None) -> None:
        self.ready_file = folder / "ready.json"
        self.log_path = folder / "server.log"
        self.trials_dir = folder / "trials"
        argv = [sys.executable, str(ROOT / "agent_server.py"), "--port", "0", "--environment", "local"]
        argv += ["--harbor-tasks-dir", str(tasks_dir), "--trials-dir", str(self.trials_dir)]
        argv += ["--ready-file", str(self.ready_file), *flags]
        with self.log_path.open("w") as log:
            self.process = subprocess.Popen(
                argv, cwd=ROOT, stderr=log, stdout=log, env={**os.environ, **(environ or {})}
            )
        self.url = self._wait_until_ready()
        self.client = httpx.Client(base_url=self.url, timeout=60)

    def _wait_until_ready(self) -> str:
        deadline = time.monotonic() + 60
        while not self.ready_file.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                raise RuntimeError(f"agent server did not start: {self.log}")
            time.sleep(0.02)
        ready = json.loads(self.ready_file.read_text())
        return f"http://{ready['host']}:{ready['port']}"

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def run(self, instance_id: object, base_url: str | None = None, **fields: Any) -> httpx.Response:
        return self.client.post("/run", json=run_body(instance_id, base_url, **fields))

    def health(self) -> dict[str, Any]:
        return self.client.get("/health").json()

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.process.pid)

    def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)

    def close(self) -> None:
        self.client.close()
        if self.process.poll() is None:
            self.terminate()


def cpu_seconds(pid: int) -> float:
    """CPU of a process and of every child it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(int(value) for value in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def run_body(instance_id: object, base_url: str | None = None, **fields: Any) -> dict[str, Any]:
    return {
        "instance_id": instance_id,
        "agent_name": "shell",
        "base_url": base_url,
        "model": "openai/model",
        "sampling_params": {"temperature": 0.7, "max_tokens": 32},
        **fields,
    }

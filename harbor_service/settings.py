"""What the server was asked to do: one flat block of checked values."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harbor_service.bad_setting import BadSetting
from harbor_service.secret import Secret


@dataclass(frozen=True)
class Settings:
    """Resolved settings. Raises BadSetting."""

    # Where it listens
    host: str = "127.0.0.1"
    port: int = 11000  # 0: a free one
    dashboard_port: int = 0  # 0: no dashboard

    # What it runs
    harbor_tasks_dir: Path = Path("tasks")
    trials_dir: Path = Path("trials")
    environment: str = "docker"
    environment_options: tuple[str, ...] = ()  # KEY=VALUE
    unsafe_no_sandbox: bool = False  # the local environment's commands as plain processes
    agent_options: dict[str, Any] = field(default_factory=dict[str, Any])  # under a record's own

    # How much and how long
    max_concurrent: int = 8  # trials
    max_queued: int = 4096  # trials waiting for a slot; each holds a connection
    agent_timeout: float = 1800.0  # seconds
    setup_timeout: float = 360.0  # seconds
    drain_seconds: float = 0.0  # seconds that SIGTERM leaves running trials to finish
    shutdown_grace: float = 10.0  # seconds

    # What stays on disk
    keep_trials_hours: float = 72.0  # hours after a trial's end
    keep_trials_gb: float = 20.0  # 1e9 bytes of all ended trials together

    # Who may call
    token: Secret | None = field(default=None, repr=False)
    admin_secret: Secret | None = field(default=None, repr=False)

    # Who watches it
    ready_file: Path | None = None
    parent_pid: int | None = None

    def __post_init__(self) -> None:
        for name in ("port", "dashboard_port"):
            value = getattr(self, name)
            _require(0 <= value <= 65535, f"--{_flag(name)} must be between 0 and 65535, not {value}")
        _require(
            self.port == 0 or self.port != self.dashboard_port,
            f"--dashboard-port and --port are both {self.port}; give the dashboard its own",
        )
        _require(self.max_concurrent >= 1, f"--max-concurrent must be at least 1, not {self.max_concurrent}")
        _require(self.max_queued >= 0, f"--max-queued must be at least 0, not {self.max_queued}")
        for name in ("drain_seconds", "keep_trials_hours", "keep_trials_gb"):
            value = getattr(self, name)
            _require(value >= 0, f"--{_flag(name)} must be at least 0, not {value}")
        _require(math.isfinite(self.drain_seconds), "--drain-seconds must be a number of seconds, not infinite")
        for name in ("agent_timeout", "setup_timeout", "shutdown_grace"):
            value = getattr(self, name)
            _require(math.isfinite(value) and value > 0, f"--{_flag(name)} must be more than 0 seconds, not {value}")
        _require(
            self.harbor_tasks_dir.is_dir(),
            f"no folder of tasks at {self.harbor_tasks_dir}; name it with --harbor-tasks-dir or HARBOR_TASKS_DIR",
        )


def _flag(name: str) -> str:
    return name.replace("_", "-")


def _require(holds: bool, problem: str) -> None:
    if not holds:
        raise BadSetting(problem)

"""`agent_server.py check`: the tasks of a folder that cannot be trained on, found before the training.

Exit codes: 0 all tasks are fine, 1 some are broken, 2 an option cannot work, 3 the environment cannot work here,
130 Ctrl-C, 143 SIGTERM.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import math
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from harbor_service.bad_setting import BadSetting
from harbor_service.environments import (
    LOCAL,
    PROVIDERS,
    BadEnvironment,
    check_environment,
    clear_leftovers,
    environment_config,
)
from harbor_service.provider_keys import load_provider_keys
from harbor_service.settings import Settings
from harbor_service.task_check import Finding, TaskCheck
from harbor_service.task_store import TaskStore
from harbor_service.trial_folders import TrialFolders
from harbor_service.trial_runner import TrialRunner


def check_main(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Parse, check, print; answers the exit code."""
    flags = _parser().parse_args(argv)
    # A trial that fails is a line of the result, and no traceback between the lines.
    logging.getLogger("harbor_service").setLevel(logging.ERROR)
    logging.getLogger("harbor.utils.logger").setLevel(logging.CRITICAL)
    try:
        settings = _settings(flags, environ)
        load_provider_keys(os.environ, settings.environment)
        environment = environment_config(settings.environment, settings.environment_options)
        check_environment(environment)
        clear_leftovers(environment)
        with _trials_dir(flags.trials_dir) as trials_dir:
            runner = TrialRunner(
                tasks=TaskStore(settings.harbor_tasks_dir),
                environment=environment,
                folders=TrialFolders(trials_dir, keep_seconds=math.inf, keep_bytes=math.inf),
                agent_timeout=settings.agent_timeout,
                setup_timeout=settings.setup_timeout,
            )
            check = TaskCheck(runner, settings.max_concurrent, keep_trials=flags.trials_dir is not None)
            return asyncio.run(_Report(runner.tasks.names(), as_json=flags.format == "json").make(check))
    except BadSetting as error:
        print(f"agent_server.py check: {error}", file=sys.stderr)
        return 2
    except BadEnvironment as error:
        print(f"agent_server.py check: environment: {error}", file=sys.stderr)
        return 3


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="agent_server.py check",
        description="Runs the solution of each task, which must earn 1, and an agent that does nothing, which must "
        "earn 0; lists the tasks where that is not so.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    defaults = Settings(harbor_tasks_dir=Path())
    kinds = ", ".join((LOCAL, *PROVIDERS))
    add("--tasks-dir", help="task folders; default: HARBOR_TASKS_DIR")
    add("--environment", default=defaults.environment, help=f"{kinds} or MODULE:CLASS (default: %(default)s)")
    add("--environment-option", action="append", default=[], metavar="KEY=VALUE", help="passed to the environment")
    add("--max-concurrent", type=int, default=defaults.max_concurrent, help="trials at once (default: %(default)s)")
    add("--agent-timeout", type=float, default=defaults.agent_timeout, help="seconds of a solution (%(default)s)")
    add("--trials-dir", help="keep the trials' files here; default: they are removed")
    add("--format", choices=("text", "json"), default="text", help="what is printed (default: %(default)s)")
    return parser


def _settings(flags: argparse.Namespace, environ: Mapping[str, str]) -> Settings:
    tasks_dir: str | None = flags.tasks_dir or environ.get("HARBOR_TASKS_DIR")
    if not tasks_dir:
        raise BadSetting("no folder of tasks: give --tasks-dir or set HARBOR_TASKS_DIR")
    if not Path(tasks_dir).is_dir():
        raise BadSetting(f"no folder of tasks at {tasks_dir}; name it with --tasks-dir or HARBOR_TASKS_DIR")
    return Settings(
        harbor_tasks_dir=Path(tasks_dir),
        environment=flags.environment,
        environment_options=tuple(flags.environment_option),
        max_concurrent=flags.max_concurrent,
        agent_timeout=flags.agent_timeout,
    )


@contextlib.contextmanager
def _trials_dir(kept: str | None) -> Generator[Path]:
    if kept is None:
        with tempfile.TemporaryDirectory(prefix="task-check-") as folder:
            yield Path(folder)
        return
    try:
        Path(kept).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadSetting(f"cannot make --trials-dir {kept}: {error}") from error
    yield Path(kept).resolve()


class _Report:
    """What is printed while the check runs and at its end: results on standard output, progress on a terminal."""

    def __init__(self, names: list[str], *, as_json: bool) -> None:
        self._names = names
        self._as_json = as_json
        self._broken: dict[str, list[Finding]] = {}
        self._checked = 0
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),  # above the bar; what goes to a file stays there
            disable=not console.is_terminal,
        )

    async def make(self, check: TaskCheck) -> int:
        if not self._names:
            raise BadSetting("the folder holds no tasks: none of its folders has a task.toml")
        started = time.monotonic()
        stopped = await self._until_stopped(check)
        self._conclude(time.monotonic() - started, stopped)
        return 128 + stopped if stopped is not None else int(bool(self._broken))

    async def _until_stopped(self, check: TaskCheck) -> signal.Signals | None:
        """Run the check; a signal ends its trials, and is answered once their sandboxes are gone."""
        work = asyncio.create_task(self._run(check))
        stops: list[signal.Signals] = []

        def stop(by: signal.Signals) -> None:
            if not stops:  # a second cancel would cut the first one's clean-up short
                work.cancel()
            stops.append(by)

        loop = asyncio.get_running_loop()
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(each, stop, each)
        with contextlib.suppress(asyncio.CancelledError):
            await work
        return stops[0] if stops else None

    async def _run(self, check: TaskCheck) -> None:
        with self._progress:
            line = self._progress.add_task("tasks", total=len(self._names))

            def checked(instance_id: str, findings: list[Finding]) -> None:
                self._checked += 1
                if findings:
                    self._broken[instance_id] = findings
                    self._print(instance_id, findings)
                broken = f", {len(self._broken)} broken" if self._broken else ""
                self._progress.update(line, advance=1, description=f"tasks{broken}")

            await check.run(self._names, checked)

    def _print(self, instance_id: str, findings: list[Finding]) -> None:
        if self._as_json:
            return
        for finding in findings:
            text = " ".join(f"{instance_id}: {finding.fault}: {finding.reason}".split())
            # What a task printed may hold a terminal's control sequences.
            print("".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text), flush=True)

    def _conclude(self, seconds: float, stopped: signal.Signals | None) -> None:
        faults = Counter(finding.fault.value for findings in self._broken.values() for finding in findings)
        if self._as_json:
            report: dict[str, Any] = {
                "tasks": len(self._names),
                "checked": self._checked,
                "seconds": round(seconds, 1),
                "faults": dict(sorted(faults.items())),
                "broken": {
                    name: [{"fault": finding.fault.value, "reason": finding.reason} for finding in findings]
                    for name, findings in sorted(self._broken.items())
                },
            }
            print(json.dumps(report), flush=True)
            return
        counts = "".join(f", {fault} {count}" for fault, count in sorted(faults.items()))
        end = f"stopped by {stopped.name}: " if stopped is not None else ""
        print(
            f"{end}{self._checked} of {len(self._names)} tasks checked in {seconds:.1f} s, "
            f"{len(self._broken)} broken{counts}",
            flush=True,
        )

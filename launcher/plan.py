"""The plan of a run: what would start, with which arguments, where things land. Printed, and kept beside the run."""

from __future__ import annotations

import errno
import io
import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from launcher.cli import SWITCHES, fields_of, flag, groups_of
from launcher.errors import LauncherError
from launcher.options import CommonOptions
from launcher.output import write
from launcher.secrets import shown
from progress.visible import visible

# Of this invocation, not of the run: they would make a copied command print a plan instead of starting.
_INVOCATION = frozenset({"dry_run", "format", "preflight_only", "skip_preflight", "no_wait", "ray_address"})


@dataclass(frozen=True)
class Plan:
    """`arguments` keeps flag and value apart; `environment` holds real values, `as_dict` hides the secrets."""

    launcher: str
    engine: str
    run_id: str
    entrypoint: tuple[str, ...]
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    placement: Mapping[str, Any]
    ports: Mapping[str, int]
    files: Mapping[str, str]
    memory: Mapping[str, Any]
    notes: tuple[str, ...]
    without_counterpart: Mapping[str, Sequence[str]] = field(default_factory=dict[str, list[str]])
    """Of a rehearsed plan, by kind: too many to print, so only `as_dict` has them, and where there are any."""

    def as_dict(self) -> dict[str, Any]:
        return {
            "launcher": self.launcher,
            "engine": self.engine,
            "run_id": self.run_id,
            "entrypoint": list(self.entrypoint),
            "arguments": list(self.arguments),
            "environment": shown(self.environment),
            "placement": dict(self.placement),
            "ports": dict(self.ports),
            "files": dict(self.files),
            "memory": dict(self.memory),
            "notes": list(self.notes),
            **({"without_counterpart": dict(self.without_counterpart)} if self.without_counterpart else {}),
        }

    def as_json(self) -> str:
        return json.dumps(self.as_dict(), indent=2)

    def command(self) -> str:
        """For a person to copy; nothing is ever started from it."""
        return shlex.join((*self.entrypoint, *self.arguments))

    def launch_files(self) -> tuple[Path, ...]:
        """Beside the checkpoints, and beside the dumps where there are any."""
        traces = self.files.get("traces")
        return Path(self.files["launch"]), *((Path(traces) / "launch.json",) if traces else ())


def option_arguments(options: CommonOptions, without: Set[str]) -> tuple[str, ...]:
    """The options, less those named, as the command line that gives exactly them."""
    arguments: list[str] = []
    for group_name, group in groups_of(type(options)):
        values = getattr(options, group_name)
        if values is None:
            continue
        for name, _, _ in fields_of(group):
            if name not in _INVOCATION | without:
                arguments += _arguments(name, getattr(values, name))
    return tuple(arguments)


def _arguments(name: str, value: object) -> list[str]:
    if value is None or value == ():
        return []
    if isinstance(value, bool):
        if name in SWITCHES:
            return [flag(name)] if value else []
        return [flag(name) if value else flag("no_" + name)]
    if isinstance(value, tuple):
        return [flag(name), *(str(part) for part in cast(tuple[object, ...], value))]
    return [flag(name), str(value)]


def _readable(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {part}" for name, part in cast(Mapping[str, object], value).items())
    return str(value)


def print_plan(plan: Plan, form: str) -> None:
    """`json`: one object and nothing else on standard output; `table`: for reading."""
    problem = write(sys.stdout, f"{plan.as_json()}\n" if form == "json" else _table(plan))
    # A reader that has seen enough (`| head -1`) is no problem.
    if problem is not None and problem != os.strerror(errno.EPIPE):
        raise LauncherError(f"the plan cannot be printed ({problem})")


def _table(plan: Plan) -> str:
    from rich.console import Console
    from rich.table import Table

    content = plan.as_dict()
    table = Table(
        title=f"{plan.launcher} --engine {plan.engine}: {plan.run_id}", show_header=False, title_justify="left"
    )
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("command", plan.command())
    for part in ("environment", "placement", "ports", "files", "memory"):
        table.add_row(part, "\n".join(f"{name}: {_readable(value)}" for name, value in content[part].items()))
    table.add_row("notes", "\n".join(plan.notes))
    text = io.StringIO()
    Console(file=text, width=shutil.get_terminal_size().columns, highlight=False, markup=False).print(table)
    return visible(text.getvalue())

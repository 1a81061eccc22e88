"""A plan of `--engine miles` as --dry-run or a launch has kept it, read back to be rehearsed on this machine."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from disk.regular_file import read_regular
from launcher.checks.json_object import is_process_text, json_object
from launcher.errors import OptionsError
from launcher.miles.capabilities import grouped
from launcher.paths import absolute
from launcher.scripts import SCRIPTS
from launcher.secrets import HIDDEN

OPTION = "--from-plan"
_DIGITS = 10
_MOST_BYTES = 4 * 2**20
_MOST_NAME = 100  # characters of a run's name
_MAKE_ONE = "make one with --dry-run --format json, or take <save-dir>/launch/<run-id>.json of a launch"
_MAKE_ANEW = "make it anew with this version's --dry-run --format json"


@dataclass(frozen=True)
class SavedPlan:
    """What a rehearsal takes from a plan. `flags` are Miles' arguments, each with its values."""

    path: Path
    launcher: str
    run_id: str
    flags: Mapping[str, tuple[str, ...]]
    environment: Mapping[str, str]  # of the job; a secret's value is hidden
    session_ports: tuple[int, int]  # first and last

    def value(self, flag: str) -> str:
        """Raises OptionsError where the plan has no such argument with one value, or an empty one."""
        values = self.flags.get(flag, ())
        if len(values) != 1 or not values[0].strip():
            raise OptionsError(f"{OPTION} {self.path}: its arguments have no {flag} with a value; {_MAKE_ANEW}")
        return values[0]

    def number(self, flag: str) -> int:
        """A positive whole number."""
        return self.count(flag, self.value(flag))

    def decimal(self, flag: str) -> float:
        return self.measure(flag, self.value(flag))

    def count(self, name: str, text: str, least: int = 1) -> int:
        """`text` of `name` as a whole number of at least `least`. Raises OptionsError."""
        if not (text.isascii() and text.isdigit() and len(text) < _DIGITS and int(text) >= least):
            kind = "positive number" if least else "whole number"
            raise OptionsError(f"{OPTION} {self.path}: {name} {text[:40]!r} is no {kind}; {_MAKE_ANEW}")
        return int(text)

    def measure(self, name: str, text: str) -> float:
        """`text` of `name` as a finite number. Raises OptionsError."""
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise OptionsError(f"{OPTION} {self.path}: {name} {text[:40]!r} is no number; {_MAKE_ANEW}")
        return number

    def variable(self, name: str) -> str:
        """Of the job's environment. Raises OptionsError where it is not there."""
        if not self.environment.get(name, "").strip():
            raise OptionsError(f"{OPTION} {self.path}: its environment has no {name}; {_MAKE_ANEW}")
        return self.environment[name]

    def hidden(self) -> list[str]:
        """Variables whose values a plan does not keep."""
        return sorted(name for name, value in self.environment.items() if value == HIDDEN)


def read_plan(given: str, program: str) -> SavedPlan:
    """Raises OptionsError for what is no whole plan of `program` for --engine miles."""
    path = absolute(given)
    try:
        content = json_object(read_regular(path, _MOST_BYTES))
    except OSError as error:
        raise OptionsError(f"{OPTION} {path} cannot be read ({error.strerror}); {_MAKE_ONE}") from None
    except ValueError as error:
        raise OptionsError(f"{OPTION} {path} is no plan ({str(error)[:100]}); {_MAKE_ONE}") from None
    launcher, engine = content.get("launcher"), content.get("engine")
    if launcher not in (*SCRIPTS, program) or engine not in ("miles", "local"):
        raise OptionsError(f"{OPTION} {path} is no plan of these launchers; {_MAKE_ONE}")
    if engine == "local":
        raise OptionsError(
            f"{OPTION} {path} is the plan of a run on this machine already; repeat that with its own arguments, or "
            "name a plan of --engine miles"
        )
    if launcher != program:
        raise OptionsError(
            f"{OPTION} {path} is a plan of {launcher}; rehearse it with `python {launcher} --engine local {OPTION} "
            f"{given}`"
        )
    run_id, arguments, environment, ports = (
        content.get(part) for part in ("run_id", "arguments", "environment", "ports")
    )
    named = isinstance(run_id, str) and run_id.isprintable() and len(run_id) <= _MOST_NAME
    if not named or not _is_texts(arguments) or not _is_variables(environment) or not isinstance(ports, dict):
        raise OptionsError(
            f"{OPTION} {path} is damaged, or of another version: it needs run_id, arguments, environment and ports; "
            f"{_MAKE_ANEW}"
        )
    first, last = (cast("dict[str, Any]", ports).get(name) for name in ("session_server", "session_server_last"))
    if type(first) is not int or type(last) is not int or not 1024 <= first <= last < 2**16:
        raise OptionsError(f"{OPTION} {path}: its session server ports are {first} to {last}; {_MAKE_ANEW}")
    return SavedPlan(
        path=path,
        launcher=program,
        run_id=cast("str", run_id),
        flags={flag: tuple(values) for flag, values in grouped(cast("list[str]", arguments))},
        environment=cast("dict[str, str]", environment),
        session_ports=(first, last),
    )


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(map(is_process_text, cast("list[object]", value)))


def _is_variables(value: object) -> bool:
    return isinstance(value, dict) and all(
        map(is_process_text, (part for pair in cast("dict[str, object]", value).items() for part in pair))
    )

"""What the installed Miles can do, read from its source without importing it, and a plan adapted to that."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from launcher.errors import OptionsError

_FLAG = re.compile(r"""["'](--[a-z0-9][a-z0-9-]*)["']""")
_PORT = "--session-server-port"
# The newest knows by --tito-model what may follow an answer; an older one takes tool messages alone unless told.
_APPENDED_ROLES = "--tito-allowed-append-roles"
# Only with it does an older Miles call the generate and rollout functions of the recipes; the newest always does.
_ROLLOUT_SWITCH = "MILES_EXPERIMENTAL_ROLLOUT_REFACTOR"


class SessionPorts(Enum):
    """How several session servers are asked for."""

    WORKERS = "first port and a number of servers"
    RANGE = "half-open range of ports"
    SINGLE = "one server only"


@dataclass(frozen=True)
class Capabilities:
    """`flags` None: no Miles to read, the newest is assumed."""

    flags: frozenset[str] | None
    session_ports: SessionPorts
    switches_rollout: bool = False  # generate and rollout functions of a recipe are called only when told to

    def has(self, flag: str) -> bool:
        return self.flags is None or flag in self.flags


NEWEST = Capabilities(None, SessionPorts.WORKERS)

# Flags of Miles itself that a run can do without, and what is then missing.
OPTIONAL: Mapping[str, str] = {
    "--use-miles-dashboard": "no dashboard of Miles",
    "--observe-training-entropy": "train/entropy_loss stays 0",
    "--disable-wandb-random-suffix": "the W&B group gets a random suffix",
    "--rollout-health-check-first-wait": "the first health check of an engine comes early",
    "--balance-data": "trajectories are not balanced over the ranks",
    "--use-prometheus": "no metrics for Prometheus",
    "--prometheus-port": "no metrics for Prometheus",
    "--prometheus-run-name": "no metrics for Prometheus",
    "--update-weight-buffer-size": "weights are sent in Miles' own portions",
    "--max-seq-len": "sessions are bounded by the engine's context only",
}
# Flags of Miles that not every public version has, and without which the run would be another one than planned.
REQUIRED: frozenset[str] = frozenset(
    {
        "--dsa-attention-backend",
        "--experts-shared-outer-loras",
        "--fully-async",
        "--lora-adapter-path",
        "--lora-base-cpu-backup",
        "--max-weight-staleness",
        "--offload-train-disk-chunk-mb",
        "--offload-train-disk-dir",
        "--offload-train-target",
        "--use-tis",
    }
)


def read_capabilities(miles_path: Path) -> Capabilities:
    """The flags that the Python files below `<miles_path>/miles` name; the newest where they name none."""
    sources = list(_sources(miles_path))
    flags = frozenset(flag for source in sources for flag in _FLAG.findall(source))
    if not flags:
        return NEWEST
    if "--session-server-workers" in flags:
        ports = SessionPorts.WORKERS
    else:
        several = any(_takes_several(source, _PORT) for source in sources if _PORT in source)
        ports = SessionPorts.RANGE if several else SessionPorts.SINGLE
    return Capabilities(flags, ports, any(_ROLLOUT_SWITCH in source for source in sources))


def adapt(
    arguments: Sequence[str], environment: Mapping[str, str], can: Capabilities
) -> tuple[tuple[str, ...], dict[str, str], list[str]]:
    """Arguments and environment as this Miles takes them, and a sentence for every difference.

    Raises OptionsError when it lacks a flag without which the run would be another one.
    """
    if can.flags is None:
        return tuple(arguments), dict(environment), []
    kept: list[str] = []
    variables = dict(environment)
    notes: list[str] = []
    lacking: list[str] = []
    groups = dict(grouped(arguments))
    workers = int(groups.get("--session-server-workers", ["1"])[0])
    for flag, values in grouped(arguments):
        if flag == _PORT and can.session_ports is SessionPorts.RANGE:
            first = int(values[0])
            kept += [flag, str(first), str(first + workers)]
            notes.append(
                f"this Miles has no --session-server-workers: {_PORT} {first} {first + workers} is the same as a range"
            )
        elif flag == "--session-server-workers" and can.session_ports is not SessionPorts.WORKERS:
            if can.session_ports is SessionPorts.SINGLE and workers > 1:
                notes.append(f"this Miles starts one session server, not {workers}: tokenization may hold it up")
        elif flag == "--session-server-external-host" and not can.has(flag):
            variables["MILES_ROUTER_EXTERNAL_HOST"] = values[0]
            notes.append(f"this Miles has no {flag}: {values[0]} goes to the agent function instead")
        elif can.has(flag) or flag not in OPTIONAL.keys() | REQUIRED:
            kept += [flag, *values]
        elif flag in OPTIONAL:
            notes.append(f"this Miles has no {flag}, left out: {OPTIONAL[flag]}")
        else:
            lacking.append(flag)
    if can.has(_APPENDED_ROLES) and "--use-session-server" in groups and _APPENDED_ROLES not in groups:
        kept += [_APPENDED_ROLES, "tool", "user"]
        notes.append(
            f"this Miles takes tool messages alone after an answer: {_APPENDED_ROLES} tool user lets agents send "
            "what a command printed as a user's"
        )
    if can.switches_rollout and _ROLLOUT_SWITCH not in variables:
        variables[_ROLLOUT_SWITCH] = "1"
        notes.append(f"this Miles calls generate and rollout functions of ours only with {_ROLLOUT_SWITCH}=1")
    if lacking:
        raise OptionsError(
            f"the Miles in --miles-path has no {', '.join(lacking)}, and without the run would not be what was asked "
            "for; install a newer one"
        )
    return tuple(kept), variables, notes


def grouped(arguments: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Each flag with its values. A value may begin with one dash (a negative number), not with two."""
    flag: str | None = None
    values: list[str] = []
    for item in arguments:
        if item.startswith("--"):
            if flag is not None:
                yield flag, values
            flag, values = item, []
        else:
            values.append(item)
    if flag is not None:
        yield flag, values


def _sources(miles_path: Path) -> Iterator[str]:
    for path in sorted((miles_path / "miles").rglob("*.py")):
        try:
            yield path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue


def _takes_several(source: str, flag: str) -> bool:
    """Whether an `add_argument` of this flag has `nargs`."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return False
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            names = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
            if flag in names:
                return any(keyword.arg == "nargs" for keyword in node.keywords)
    return False

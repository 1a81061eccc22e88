"""From the options given to a complete options object: command line, then environment, then the engine's defaults."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from launcher.cli import fields_of, flag, groups_of
from launcher.engines import EngineRules
from launcher.errors import OptionsError
from launcher.options import CommonOptions
from launcher.paths import absolute, model_location
from launcher.preflight import Finding, Status
from launcher.rehearsal import Rehearsal
from launcher.secrets import validate_no_credentials

_DIGITS = 9
# Without meaning for an engine that serves this machine only, but part of what a rehearsed plan proves.
ADDRESSES = frozenset({"session_server_external_host", "miles_host_ip"})
MERGED = frozenset({"extra_env_vars"})  # a rehearsal has joined what is given to the plan's already


@dataclass(frozen=True)
class Resolved[T: CommonOptions]:
    """Complete options, and which came from where (option -> variable) instead of from the command line."""

    options: T
    given: frozenset[str]
    from_environment: Mapping[str, str]
    rehearsal: Rehearsal | None = None  # of the plan of another engine

    def origin(self, option: str) -> str:
        """The option as messages name it, with the variable that set it."""
        variable = self.from_environment.get(option)
        return (
            f"{flag(option)} (from {variable} in the environment; unset it if not meant)" if variable else flag(option)
        )

    def with_origins(self, findings: Iterable[Finding]) -> list[Finding]:
        """Each that found something amiss and names an option set by a variable says so in its way out."""
        return [finding if finding.status is Status.OK else self._with_origin(finding) for finding in findings]

    def _with_origin(self, finding: Finding) -> Finding:
        named = set(re.findall(r"--[a-z0-9-]+", f"{finding.sentence} {finding.way_out}"))
        origins = [self.origin(option) for option in self.from_environment if flag(option) in named]
        return replace(finding, way_out="; ".join((finding.way_out, *origins)))


def resolve[T: CommonOptions](
    options: type[T],
    given: Mapping[str, Any],
    engines: Mapping[str, EngineRules],
    environment: Mapping[str, str],
    rehearsal: Rehearsal | None = None,
) -> Resolved[T]:
    """Raises OptionsError for an option that the chosen engine refuses, by name, with reason and way out.

    What a rehearsed plan says is weaker than the command line and stronger than environment and defaults.
    """
    engine = engines[str(given.get("engine", next(iter(engines))))]
    values: dict[str, Any] = dict(engine.defaults)
    planned: Mapping[str, Any] = {} if rehearsal is None else rehearsal.options
    types = {name: hint for _, group in groups_of(options) for name, hint, _ in fields_of(group)}
    from_environment: dict[str, str] = {}
    for option, variables in engine.environment.items():
        variable = next((name for name in variables if environment.get(name)), None)
        if option in types and option not in given and option not in planned and variable is not None:
            values[option] = _typed(types[option], variable, environment[variable])
            from_environment[option] = variable
    values |= planned
    for option, value in given.items():
        if option in planned and option in ADDRESSES | MERGED:
            values[option] = planned[option] if option in MERGED else value
            continue
        if option not in values and option not in engine.refused and option not in engine.derived:
            there = [name for name, other in engines.items() if option in other.defaults]
            other = f"add --engine {there[0]}, which has it, or " if there else ""
            raise OptionsError(f"{flag(option)} is not an option of --engine {engine.name} here; {other}leave it out")
        values[option] = _given(option, value, engine)
    for option, derive in engine.derived.items():
        if option not in given and option not in from_environment:
            values[option] = derive(values)
    for option, value in values.items():
        # These two have more to say about it than this.
        if option not in ("agent_server_url", "extra_env_vars", "ray_address"):
            validate_no_credentials(from_environment.get(option) or flag(option), value)
    for option in engine.paths & values.keys():
        values[option] = _path(option, values[option])
    groups = {name: _build(group, values) for name, group in groups_of(options)}
    explicit = frozenset(name for name in given if given[name] != "")
    return Resolved(options(**groups), explicit, from_environment, rehearsal)


def _given(option: str, value: Any, engine: EngineRules) -> Any:
    if option in engine.refused:
        raise OptionsError(f"{flag(option)} with --engine {engine.name}: {engine.refused[option]}")
    if option in ("families", "target_modules"):
        return _split(value)
    if value == "":
        if engine.defaults.get(option) is not None or option in engine.derived:
            raise OptionsError(f"{flag(option)} is empty; give a value, or leave it out")
        # The documented example writes "" for what is not given.
        return None
    if isinstance(value, str) and value.startswith("--"):
        raise OptionsError(f"{flag(option)} {value}: a value cannot begin with --, Miles would read it as a flag")
    return value


def _build(group: type, values: Mapping[str, Any]) -> Any:
    names = [name for name, _, _ in fields_of(group)]
    if not any(name in values for name in names):
        return None
    return group(**{name: values.get(name) for name in names})


def _typed(hint: Any, variable: str, text: str) -> Any:
    if hint is int:
        if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
            raise OptionsError(
                f"{variable}={text[:40]!r} in the environment is not a whole number; unset or correct it"
            )
        return int(text)
    return text


def _path(option: str, value: Any) -> Any:
    """Absolute; `disabled` traces, hub ids and what is not given stay as they are."""
    if not isinstance(value, str) or not value or (option == "save_traces_dir" and value == "disabled"):
        return value
    if option in ("hf_checkpoint", "fp8_rollout_checkpoint"):
        return model_location(value)
    return str(absolute(value))


def _split(items: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part for item in items for part in item.replace(",", " ").split())

"""What every launcher does: parse, resolve, check the rules, and hand over to the engine."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from launcher import local
from launcher.cli import parse
from launcher.engines import EngineRules
from launcher.errors import with_exit_code
from launcher.miles.recipe import Build, FindStart, SandboxLifetime
from launcher.options import LocalOptions
from launcher.rehearsal import rehearse
from launcher.resolve import Resolved, resolve
from launcher.rules import validate
from launcher.saved_plan import read_plan


@dataclass(frozen=True)
class Launcher[T: LocalOptions]:
    """A launcher as its script declares it. `engines` lists the default one first."""

    program: str
    description: str
    options: type[T]
    engines: Mapping[str, EngineRules]
    recipe: Build[T]
    find_start: FindStart[T]
    sandboxes: Callable[[float], SandboxLifetime] | None = None  # from a trial's seconds, where a provider has them
    lacks: Mapping[str, str] = field(default_factory=dict[str, str])  # option of another launcher -> why not here

    def resolved(self, argv: Sequence[str], environment: Mapping[str, str]) -> Resolved[T]:
        """Raises OptionsError; exits with 0 after --help, with 2 on an unknown flag."""
        given = parse(self.program, self.description, self.options, tuple(self.engines.values()), argv, self.lacks)
        rehearsal = None
        if given.get("from_plan") and given.get("engine") == "local":
            rehearsal = rehearse(read_plan(given["from_plan"], self.program), given, environment)
        resolved = resolve(self.options, given, self.engines, environment, rehearsal)
        validate(resolved.options, resolved.given)
        return resolved

    def run(self, argv: Sequence[str], environment: Mapping[str, str]) -> int:
        """Exit code per `ExitCode`. Raises LauncherError."""
        resolved = self.resolved(argv, environment)
        if resolved.options.job.engine == "local":
            return local.launch(self.program, resolved, environment, self.sandboxes)
        # Only now: what plans and submits takes longer to import than --help may take.
        from launcher.miles.launch import launch

        return launch(self.program, resolved, self.recipe, self.find_start, environment)

    def main(self) -> int:
        return with_exit_code(self.program, lambda: self.run(sys.argv[1:], os.environ))

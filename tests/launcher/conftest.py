from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import run
from launcher.errors import with_exit_code
from launcher.resolve import Resolved, resolve
from launcher.rules import validate


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str


@pytest.fixture
def launch(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Answer]:
    """run.py with an environment of its own, in an empty folder; nothing but --dry-run and refusals gets here."""
    monkeypatch.chdir(tmp_path)

    def call(*argv: str, **environment: str) -> Answer:
        try:
            code = with_exit_code("run.py", lambda: run.run(argv, environment))
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return Answer(code, captured.out, captured.err)

    return call


@pytest.fixture
def plan_of(launch: Callable[..., Answer]) -> Callable[..., dict[str, Any]]:
    def call(*argv: str, **environment: str) -> dict[str, Any]:
        answer = launch("--engine", "local", "--dry-run", "--format", "json", *argv, **environment)
        assert answer.code == 0, answer.err
        return json.loads(answer.out)

    return call


@pytest.fixture
def options_of() -> Callable[..., Resolved[run.Options]]:
    def call(*argv: str, **environment: str) -> Resolved[run.Options]:
        given = run.parse("run.py", "", run.Options, tuple(run.ENGINES.values()), argv)
        resolved = resolve(run.Options, given, run.ENGINES, environment)
        validate(resolved.options)
        return resolved

    return call

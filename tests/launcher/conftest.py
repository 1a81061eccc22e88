from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from launcher.errors import with_exit_code
from launcher.resolve import Resolved
from tests.launcher.miles.launchers import launcher


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str


@pytest.fixture
def launch(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Answer]:
    """A launcher (run.py) with an environment of its own, in an empty folder, for --dry-run and refusals."""
    monkeypatch.chdir(tmp_path)

    def call(*argv: str, script: str = "sync", **environment: str) -> Answer:
        chosen = launcher(script)
        try:
            code = with_exit_code(chosen.program, lambda: chosen.run(argv, environment))
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
def options_of() -> Callable[..., Resolved[Any]]:
    def call(*argv: str, script: str = "sync", **environment: str) -> Resolved[Any]:
        return launcher(script).resolved(argv, environment)

    return call

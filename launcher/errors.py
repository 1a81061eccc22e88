"""Exit codes of a launcher and the errors that carry them."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import ClassVar

from launcher.output import say


class ExitCode(IntEnum):
    """What the shell sees."""

    SUCCEEDED = 0
    FAILED = 1
    REFUSED = 2  # the options or the plan cannot work
    PREFLIGHT_FAILED = 3
    NOTHING_LEFT = 4
    STOPPED = 130  # Ctrl-C, or SIGTERM while a job is followed


class LauncherError(Exception):
    """Ends a launcher before anything starts; the text says what is wrong and the way out."""

    exit_code: ClassVar[ExitCode] = ExitCode.FAILED


class OptionsError(LauncherError):
    """The options cannot work together, whatever the machine looks like."""

    exit_code = ExitCode.REFUSED


class PreflightError(LauncherError):
    """The machine or its services cannot carry the plan."""

    exit_code = ExitCode.PREFLIGHT_FAILED


class NothingLeftError(LauncherError):
    """A resumed run has already done every rollout it was asked for."""

    exit_code = ExitCode.NOTHING_LEFT


def with_exit_code(program: str, body: Callable[[], int]) -> int:
    """Runs `body` and turns what ends it early into one line on standard error and an exit code."""
    try:
        return body()
    except LauncherError as error:
        say(f"{program}: {error}")
        return int(error.exit_code)
    except KeyboardInterrupt:
        say(f"{program}: stopped")
        return int(ExitCode.STOPPED)

"""One command of an agent in its sandbox."""

# pyright: reportMissingTypeStubs=false
# Harbor is typed but has no marker file that says so.

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harbor.environments.base import BaseEnvironment

TIMED_OUT = 124  # as coreutils' timeout
NOT_RUN = 126
# The kernel takes 128 KiB in one argument; a longer command would fail as if the machine were broken.
_COMMAND_BYTES = 100_000


@dataclass(frozen=True)
class CommandResult:
    """Exit code and output, standard output before standard error; `problem` says why there is no code of its own."""

    code: int
    output: str
    problem: str | None = None


async def run_command(
    environment: BaseEnvironment,
    command: str,
    timeout: int,
    metrics: dict[str, Any],
    env: Mapping[str, str] | None = None,
) -> CommandResult:
    """Run `command` for at most `timeout` seconds, counted in `metrics`.

    Raises:
        RuntimeError: the sandbox (not a command in it) failed.
    """
    raw = command.encode("utf-8", "replace")
    if len(raw) > _COMMAND_BYTES:
        return CommandResult(NOT_RUN, "", f"Command too long: {len(raw)} bytes, at most {_COMMAND_BYTES}.")
    if b"\0" in raw:
        return CommandResult(NOT_RUN, "", "Command holds a null byte.")
    metrics["commands"] += 1
    started = time.monotonic()
    try:
        result = await environment.exec(raw.decode(), timeout_sec=timeout, env=dict(env) if env else None)
    except (RuntimeError, TimeoutError) as error:
        # Harbor's environments have no type for a command over its limit, only this text.
        if not str(error).startswith("Command timed out") and not isinstance(error, TimeoutError):
            raise
        printed = [getattr(error, stream, "") or "" for stream in ("stdout", "stderr")]
        return CommandResult(TIMED_OUT, "".join(printed), f"Command timed out after {timeout} seconds.")
    finally:
        metrics["command_seconds"] += time.monotonic() - started
    return CommandResult(result.return_code, (result.stdout or "") + (result.stderr or ""))

"""What this server refuses in a task that Harbor itself would run."""

# pyright: reportMissingTypeStubs=false
# Harbor is typed but has no marker file that says so.

import math
import re
from collections.abc import Iterator, Mapping
from typing import Final, cast

from harbor.models.task.config import TaskConfig

from harbor_service.provider_keys import SERVER_SECRETS

# Harbor fills these in from the environment of this process.
_ASKS: Final = re.compile(rf"\$\{{\s*({'|'.join(SERVER_SECRETS)})\b")


class TaskBroken(Exception):
    """The task must not run here; the text says why."""


def refuse_unfit(config: TaskConfig) -> None:
    """Raises TaskBroken: a limit that is no number, or a variable that would carry a key of ours into the sandbox."""
    for place, value in _leaves("", config.model_dump()):
        if isinstance(value, float) and math.isnan(value):
            # In the event loop's heap of timers it would hold up those of other trials.
            raise TaskBroken(f"task.toml: {place} is nan; give a number")
        if isinstance(value, str) and (asked := _ASKS.search(value)):
            raise TaskBroken(f"task.toml: {place} asks for {asked[1]}, which never enters a sandbox")


def _leaves(place: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        for name, part in cast("Mapping[object, object]", value).items():
            yield from _leaves(f"{place}.{name}" if place else str(name), part)
    elif isinstance(value, list | tuple):
        for number, part in enumerate(cast("list[object]", value)):
            yield from _leaves(f"{place}[{number}]", part)
    else:
        yield place, value

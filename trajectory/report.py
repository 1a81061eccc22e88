"""Hands an outcome from the agent function to the generate hook that wraps Miles.

Miles stands between the two and drops the agent function's answer when no model call was recorded, so the answer
also travels beside it, within the same asyncio task.
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from trajectory.outcome import Outcome

_listener: ContextVar[list[Outcome] | None] = ContextVar("trajectory_outcomes", default=None)


@contextmanager
def listening() -> Generator[list[Outcome]]:
    """Collects what is reported inside the block, in order."""
    heard: list[Outcome] = []
    token = _listener.set(heard)
    try:
        yield heard
    finally:
        _listener.reset(token)


def report(outcome: Outcome) -> None:
    """Tell the listener of this task, if there is one."""
    heard = _listener.get()
    if heard is not None:
        heard.append(outcome)

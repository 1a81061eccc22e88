"""The agent server's own account of its trials, from its log."""

import re

_ENDED = re.compile(r"(?:shell|oracle|nop) (\S+): (\w+), reward ")


def ended_trials(log: str) -> dict[str, list[str]]:
    """instance_id -> exit status of each trial of it that ended; a server that was killed says nothing of the last."""
    found: dict[str, list[str]] = {}
    for instance_id, status in _ENDED.findall(log):
        found.setdefault(instance_id, []).append(status)
    return found

"""The agent server's own account of its trials, from its log."""

import re

_ENDED = re.compile(r" INFO \S+ (\S+): (.+), reward \S+, (\S+) s after \S+ s in the queue$", re.MULTILINE)


def ended_trials(log: str) -> dict[str, list[str]]:
    """instance_id -> exit status of each trial of it that started and ended.

    A server that was killed says nothing of its last ones; one that was cut off in the queue never was a trial.
    """
    found: dict[str, list[str]] = {}
    for instance_id, status, seconds in _ENDED.findall(log):
        if status == "Aborted" and float(seconds) == 0:
            continue
        found.setdefault(instance_id, []).append(status)
    return found

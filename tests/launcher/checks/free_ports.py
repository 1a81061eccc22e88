"""Ports that nobody has, below those that the kernel gives to outgoing connections."""

from __future__ import annotations

import random

from launcher.checks.ports import is_free


def free_span(length: int) -> int:
    """First of `length` consecutive free ports."""
    for _ in range(1000):
        first = random.randrange(12000, 30000)
        if all(is_free(first + offset) for offset in range(length)):
            return first
    raise RuntimeError(f"no {length} consecutive free ports")

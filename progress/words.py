"""Numbers as they stand in a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


def in_words(seconds: float) -> str:
    """`12 s`, `47 min`, `3 h 10 min`, `2 days 4 h`; what a clock set back makes negative is `0 s`."""
    whole = max(0, round(seconds))
    if whole < 120:
        return f"{whole} s"
    minutes = round(whole / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} days {hours} h" if hours else f"{days} days"


def stretches(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """First and last of every stretch of consecutive numbers, ascending."""
    found: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def listed(numbers: Iterable[int], most: int = 8) -> str:
    """`5, 6`, `0 to 7, 9`; after `most` stretches, how many more there are."""
    parts = stretches(numbers)
    shown = [str(first) if first == last else f"{first}{', ' if last == first + 1 else ' to '}{last}"
             for first, last in parts[:most]]  # fmt: skip
    more = len(parts) - most
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def shares(counts: Mapping[str, int], most: int = 3) -> str:
    """`ServerUnreachable 96%, NeverRan 4%`, most frequent first."""
    total = sum(counts.values())
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    parts = [f"{name} {count / total:.0%}" for name, count in ranked[:most]]
    return ", ".join(parts) + (f", {len(ranked) - most} more" if len(ranked) > most else "")


def plural(count: int, noun: str) -> str:
    """`1 rollout`, `2 rollouts`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def median(values: Sequence[float]) -> float | None:
    """None of nothing; of an even number, the mean of the two in the middle."""
    if not values:
        return None
    ranked, half = sorted(values), len(values) // 2
    return ranked[half] if len(ranked) % 2 else (ranked[half - 1] + ranked[half]) / 2

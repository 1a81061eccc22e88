"""Numbers of the agents of one step, for the trainer's log."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, cast

from trajectory.outcome import finite_number


def flat_samples(samples: Iterable[Any]) -> list[Any]:
    """Samples out of groups out of lists, in order (a trajectory may be several samples)."""
    flat: list[Any] = []
    for entry in samples:
        if isinstance(entry, list | tuple):
            flat.extend(flat_samples(cast(Iterable[Any], entry)))
        else:
            flat.append(entry)
    return flat


def aggregate_agent_metrics(samples: Iterable[Any]) -> dict[str, float]:
    """Means, maxima and sums of what the agents measured, and the share of each exit status.

    Takes Miles' Sample objects or sample dicts, in groups or flat. `agent/<name>_mean`, `_max` and `_sum` are over
    the samples that report the number (seconds where its name says so); `agent/exit_status/<status>` is a fraction
    of all samples that have one. No samples, no numbers: an empty dict.
    """
    numbers: dict[str, list[float]] = {}
    statuses: Counter[str] = Counter()
    for sample in flat_samples(samples):
        metadata = sample_metadata(sample)
        status = metadata.get("exit_status")
        if isinstance(status, str) and status:
            statuses[status] += 1
        measured = metadata.get("agent_metrics")
        if not isinstance(measured, Mapping):
            continue
        for name, value in cast(Mapping[str, object], measured).items():
            number = finite_number(value)
            if number is not None:
                numbers.setdefault(name, []).append(number)
    metrics: dict[str, float] = {}
    for name, values in sorted(numbers.items()):
        metrics[f"agent/{name}_mean"] = sum(values) / len(values)
        metrics[f"agent/{name}_max"] = max(values)
        metrics[f"agent/{name}_sum"] = sum(values)
    total = statuses.total()
    for status, count in sorted(statuses.items()):
        metrics[f"agent/exit_status/{status}"] = count / total
    return metrics


def sample_metadata(sample: Any) -> Mapping[str, Any]:
    """The metadata of a Miles Sample or a sample dict; empty where there is none."""
    found: object = cast(Mapping[str, Any], sample).get("metadata") if isinstance(sample, Mapping) else sample.metadata
    return cast(Mapping[str, Any], found) if isinstance(found, Mapping) else {}

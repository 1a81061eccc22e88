"""Numbers of the agents of one step, for the trainer's log."""

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, cast

from trajectory.outcome import finite_number

COMMON_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "commands": "tool_calls",
        "command_seconds": "environment_seconds",
        "env_execution_time_sum": "environment_seconds",
        "model_query_time_sum": "model_seconds",
        "n_input_tokens": "input_tokens",
        "n_output_tokens": "output_tokens",
    }
)
"""What agents and agent servers call a number -> the name that makes them comparable; both are reported."""


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

    Takes Miles' Sample objects or sample dicts, in groups or flat; a trajectory that became several samples counts
    once. `agent/<name>_mean`, `_max` and `_sum` are over the trajectories that report the number, under its own name
    and its common one (turns, tool_calls, model_seconds, environment_seconds, input_tokens, output_tokens, ...);
    `agent/exit_status/<status>` is a fraction of all that have one. No samples, no numbers: an empty dict.
    """
    numbers: dict[str, list[float]] = {}
    statuses: Counter[str] = Counter()
    for metadata in _trajectories(samples):
        status = metadata.get("exit_status")
        if isinstance(status, str) and status:
            statuses[status] += 1
        for name, number in _measured(metadata).items():
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


def _trajectories(samples: Iterable[Any]) -> list[Mapping[str, Any]]:
    """The metadata of each trajectory: its samples share group and index, and one answer of the agent server."""
    seen: set[tuple[object, object]] = set()
    found: list[Mapping[str, Any]] = []
    for sample in flat_samples(samples):
        group, index = _field(sample, "group_index"), _field(sample, "index")
        if index is not None:
            if (group, index) in seen:
                continue
            seen.add((group, index))
        found.append(sample_metadata(sample))
    return found


def _measured(metadata: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers that an agent gave; what it left out is absent, not 0."""
    given = metadata.get("agent_metrics")
    if not isinstance(given, Mapping):
        return {}
    numbers = {
        name: number
        for name, value in cast(Mapping[str, object], given).items()
        if (number := finite_number(value)) is not None
    }
    return {common: numbers[name] for name, common in COMMON_NAMES.items() if name in numbers} | numbers


def sample_metadata(sample: Any) -> Mapping[str, Any]:
    """The metadata of a Miles Sample or a sample dict; empty where there is none."""
    found = _field(sample, "metadata")
    return cast(Mapping[str, Any], found) if isinstance(found, Mapping) else {}


def _field(sample: Any, name: str) -> object:
    if isinstance(sample, Mapping):
        return cast(Mapping[str, Any], sample).get(name)
    return getattr(sample, name, None)

"""Agents' numbers are averaged over those that report them."""

from types import SimpleNamespace
from typing import Any

from trajectory.metrics import aggregate_agent_metrics


def entry(status: str | None, metrics: Any) -> dict[str, Any]:
    return {"metadata": {"exit_status": status, "agent_metrics": metrics}}


def test_samples_and_dicts_in_groups_give_means_and_shares() -> None:
    samples = [
        [SimpleNamespace(metadata={"exit_status": "Submitted", "agent_metrics": {"turns": 2, "model_seconds": 1.5}})],
        [[entry("Submitted", {"turns": 4})], entry("TurnLimitExceeded", {"turns": 3, "note": "x", "done": True})],
        entry("VerifierError", {"turns": float("nan")}),
    ]
    metrics = aggregate_agent_metrics(samples)
    assert metrics["agent/turns_mean"] == 3.0
    assert metrics["agent/turns_max"] == 4.0
    assert metrics["agent/turns_sum"] == 9.0
    assert metrics["agent/model_seconds_mean"] == 1.5
    assert metrics["agent/exit_status/Submitted"] == 0.5
    assert metrics["agent/exit_status/VerifierError"] == 0.25
    assert not any("note" in name or "done" in name for name in metrics)


def test_samples_without_numbers_give_none() -> None:
    assert aggregate_agent_metrics([]) == {}
    assert aggregate_agent_metrics([SimpleNamespace(metadata=None), {"metadata": {"agent_metrics": 3}}]) == {}

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


def test_numbers_of_different_agents_meet_under_one_name() -> None:
    metrics = aggregate_agent_metrics(
        [
            entry("Submitted", {"commands": 4, "command_seconds": 1.0}),
            entry("Submitted", {"tool_calls": 2, "commands": 9, "env_execution_time_sum": 3.0, "n_input_tokens": 100}),
        ]
    )
    assert (metrics["agent/tool_calls_mean"], metrics["agent/tool_calls_max"]) == (3.0, 4.0)
    assert metrics["agent/environment_seconds_mean"] == 2.0
    assert metrics["agent/input_tokens_mean"] == 100.0
    assert "agent/output_tokens_mean" not in metrics, "nobody reported it"


def test_a_trajectory_that_became_several_samples_counts_once() -> None:
    parts = [{"group_index": 0, "index": 1, **entry("Submitted", {"turns": 8})} for _ in range(3)]
    other = {"group_index": 0, "index": 2, **entry("AgentError", {"turns": 2})}
    metrics = aggregate_agent_metrics([[parts, other]])
    assert (metrics["agent/turns_mean"], metrics["agent/exit_status/AgentError"]) == (5.0, 0.5)

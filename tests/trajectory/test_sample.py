"""A sample of ours has the keys and types of a sample that Miles dumped."""

from typing import Any

import pytest

from trajectory.outcome import Outcome, discarded
from trajectory.sample import make_sample

# Key -> type names seen in a real rollout dump of Miles 0.0.2 (synthetic toy task, 16 samples).
MILES_SAMPLE = {
    "group_index": "int",
    "index": "int",
    "prompt": "list",
    "tokens": "list",
    "multimodal_inputs": "NoneType",
    "multimodal_train_inputs": "NoneType",
    "response": "str",
    "response_length": "int",
    "label": "str",
    "reward": "float",
    "loss_mask": "list",
    "weight_versions": "list",
    "rollout_log_probs": "list",
    "rollout_routed_experts": "NoneType",
    "remove_sample": "bool",
    "status": "str",
    "metadata": "dict",
    "generate_function_path": "NoneType",
    "train_metadata": "NoneType",
    "session_id": "NoneType",
    "non_generation_time": "float",
    "spec_info": "dict",
    "prefix_cache_info": "dict",
}


def sample(outcome: Outcome, **changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "group_index": 1,
        "index": 9,
        "prompt": [{"role": "user", "content": "do"}],
        "metadata": {"instance_id": "mkdir-train-000017"},
        "tokens": [1, 2, 3, 4, 5],
        "response_length": 3,
        "response": "abc",
        "loss_mask": [1, 0, 1],
        "rollout_log_probs": [-0.1, 0.0, -0.2],
        "weight_versions": ["3"],
        "truncated": False,
        "outcome": outcome,
    }
    return make_sample(**(fields | changes))


def test_a_sample_has_every_key_of_a_miles_dump_in_the_same_types() -> None:
    made = sample(Outcome(1.0, "Submitted"))
    assert list(made) == list(MILES_SAMPLE)
    differing = {key for key, name in MILES_SAMPLE.items() if type(made[key]).__name__ != name}
    assert differing == {"label"}, "there is no label in an agentic record"


def test_status_and_reward_follow_the_outcome() -> None:
    assert sample(Outcome(0.0, "TurnLimitExceeded"))["status"] == "completed"
    assert sample(Outcome(0.0, "OutputLengthExceeded"), truncated=True)["status"] == "truncated"
    aborted = sample(discarded("ServerTimeout"), truncated=True)
    assert (aborted["status"], aborted["reward"]) == ("aborted", None)


def test_metadata_keeps_the_record_and_gains_the_outcome() -> None:
    metadata = sample(Outcome(1.0, "Submitted", agent_metrics={"turns": 2}))["metadata"]
    assert metadata["instance_id"] == "mkdir-train-000017"
    assert (metadata["exit_status"], metadata["agent_metrics"], metadata["discard"]) == (
        "Submitted",
        {"turns": 2},
        False,
    )


@pytest.mark.parametrize("changes", [{"loss_mask": [1]}, {"rollout_log_probs": []}, {"response_length": 6}])
def test_lengths_that_do_not_fit_are_refused_with_the_numbers(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="sample 9"):
        sample(Outcome(1.0, "Submitted"), **changes)

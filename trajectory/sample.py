"""An outcome and a recorded session become a sample, the same for both engines."""

from collections.abc import Mapping
from typing import Any

from trajectory.outcome import Outcome

OUTCOME_KEYS = ("reward", "exit_status", "discard", "eval_report", "agent_metrics")
"""Keys that an outcome writes into a sample's metadata."""


def make_sample(
    *,
    group_index: int,
    index: int,
    prompt: Any,
    metadata: dict[str, Any],
    tokens: list[int],
    response_length: int,
    response: str,
    loss_mask: list[int],
    rollout_log_probs: list[float],
    weight_versions: list[str],
    truncated: bool,
    outcome: Outcome,
) -> dict[str, Any]:
    """A sample dict with every key that Miles writes into a rollout dump.

    `tokens` is prompt and response, `loss_mask` (1 for the policy's own tokens) and `rollout_log_probs` (nats, 0.0
    where masked) cover the last `response_length` of them.

    Raises ValueError, with the numbers, when the lengths do not fit.
    """
    if not 0 <= response_length <= len(tokens):
        raise ValueError(f"sample {index}: response_length {response_length} with {len(tokens)} tokens")
    if len(loss_mask) != response_length or len(rollout_log_probs) != response_length:
        raise ValueError(
            f"sample {index}: {len(loss_mask)} mask entries and {len(rollout_log_probs)} log-probabilities "
            f"for {response_length} response tokens"
        )
    return {
        "group_index": group_index,
        "index": index,
        "prompt": prompt,
        "tokens": tokens,
        "multimodal_inputs": None,
        "multimodal_train_inputs": None,
        "response": response,
        "response_length": response_length,
        "label": None,
        "reward": outcome.reward,
        "loss_mask": loss_mask,
        "weight_versions": weight_versions,
        "rollout_log_probs": rollout_log_probs,
        "rollout_routed_experts": None,
        "remove_sample": False,
        "status": sample_status(outcome, truncated=truncated),
        "metadata": outcome_metadata(metadata, outcome),
        "generate_function_path": None,
        "train_metadata": None,
        "session_id": None,
        "non_generation_time": 0.0,
        "spec_info": {
            "spec_accept_token_num": 0,
            "spec_draft_token_num": 0,
            "spec_verify_ct": 0,
            "completion_token_num": 0,
        },
        "prefix_cache_info": {"cached_tokens": 0, "total_prompt_tokens": 0},
    }


def sample_status(outcome: Outcome, *, truncated: bool) -> str:
    """The value of Miles' `Sample.Status`: aborted for a discard, else truncated or completed."""
    if outcome.discard:
        return "aborted"
    return "truncated" if truncated else "completed"


def outcome_metadata(metadata: Mapping[str, Any], outcome: Outcome) -> dict[str, Any]:
    """`metadata` with the outcome in it, as Miles merges the agent function's answer."""
    return {**metadata, **outcome.as_dict()}


def mark_sample(sample: Any, outcome: Outcome, *, evaluation: bool = False) -> None:
    """Write an outcome into a `miles.utils.types.Sample`, in place.

    A discard is aborted whatever the session holds. Its reward is None; an evaluation's is 0.0, because Miles
    averages the rewards of evaluations without looking at the status.
    """
    sample.metadata = outcome_metadata(sample.metadata or {}, outcome)
    if outcome.discard:
        sample.status = type(sample.status)("aborted")
        sample.reward = 0.0 if evaluation else None

"""From a rollout's samples to what is trained, and back to the columns of a train dump."""

from typing import Any

import pytest
import torch

from local_engine.training_data import make_train_batch, train_dump


def sample(index: int, reward: float, mask: list[int], **changes: Any) -> dict[str, Any]:
    return {
        "index": index,
        "reward": reward,
        "tokens": [1, 2, 3, *range(10, 10 + len(mask))],
        "response_length": len(mask),
        "loss_mask": mask,
        "rollout_log_probs": [-0.1 * (n + 1) if m else 0.0 for n, m in enumerate(mask)],
        "weight_versions": ["4"],
        "status": "completed",
    } | changes


GROUPS = [
    [sample(0, 1.0, [1, 1, 0, 1]), sample(1, 0.0, [1, 1], status="truncated")],
    [sample(2, 1.0, [1]), sample(3, 1.0, [1, 1])],
    [sample(4, 0.0, [1, 0]), sample(5, 0.0, [1])],
]


def test_groups_without_variance_are_dropped_from_training_and_kept_in_the_dump() -> None:
    batch = make_train_batch(GROUPS)
    assert batch.with_signal == 1
    assert [s.trajectory.tokens for g in batch.groups for s in g] == [GROUPS[0][0]["tokens"], GROUPS[0][1]["tokens"]]
    columns = train_dump(batch)
    assert columns["sample_indices"] == [0, 1, 2, 3, 4, 5]
    assert columns["raw_reward"] == [1, 0, 1, 1, 0, 0]
    assert columns["rewards"] == pytest.approx([0.5**0.5, -(0.5**0.5), 0, 0, 0, 0], rel=1e-5)
    assert columns["truncated"] == [0, 1, 0, 0, 0, 0]


def test_only_what_the_model_wrote_is_trained() -> None:
    first = make_train_batch(GROUPS).groups[0][0]
    assert first.trajectory.prompt_length == 3
    assert first.rollout_log_probs == pytest.approx([-0.1, -0.2, -0.4])


def test_columns_are_as_long_as_the_response_and_zero_where_masked() -> None:
    batch = make_train_batch(GROUPS)
    batch.groups[0][0].log_probs = torch.tensor([-1.0, -2.0, -3.0])
    columns = train_dump(batch)
    assert columns["log_probs"][0].tolist() == [-1, -2, 0, -3]
    for name in ("loss_masks", "rollout_log_probs", "log_probs", "advantages", "returns"):
        assert [len(values) for values in columns[name]] == columns["response_lengths"] == [4, 2, 1, 2, 2, 1]
    assert columns["total_lengths"] == [len(tokens) for tokens in columns["tokens"]]
    # Not computed without signal: the sampler's numbers stand for them.
    assert torch.equal(columns["log_probs"][3], columns["rollout_log_probs"][3])
    assert set(map(len, columns.values())) == {6}

"""A packed prefix tree gives the log-probabilities and gradients of its sequences computed one by one."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from local_engine.policy import Policy, Trajectory
from local_engine.prefix_tree import pack
from tests.local_engine.conftest import plain_log_probs

TRUNK = list(range(10, 40))
SHAPES = {
    "one trunk for all": [[*TRUNK, 50, 51, 52], [*TRUNK, 50, 61], [*TRUNK, 70, 71, 72, 73]],
    "nothing shared": [[1, 2, 3, 4], [5, 6, 7], [8, 9, 10, 11, 12]],
    "blocks below blocks": [
        [*TRUNK, g, *range(g, g + 25), s, *range(150, 150 + 40 + k), k]
        for g in (100, 120)
        for k, s in enumerate((200, 200, 210, 220))
    ],
    "groups below a trunk": [[*TRUNK, g, g + 1, g + 2, s, s + 1] for g in (100, 120) for s in (200, 210, 220)],
    "identical": [[*TRUNK, 50, 51]] * 3,
    "one a prefix of another": [TRUNK, [*TRUNK, 50, 51], [*TRUNK, 50, 51, 52, 53]],
    "alone": [[*TRUNK, 7, 8, 9]],
    "branches of branches": [[1, 2, 3, 4, 5], [1, 2, 3, 9, 9], [1, 2, 8, 8, 8], [1, 7, 7], [6, 2, 3, 4, 5]],
    "a single token": [[5], [5, 6, 7]],
}


def everything_after(prompt: int, sequences: list[list[int]]) -> list[Trajectory]:
    return [Trajectory(s, [1] * max(0, len(s) - prompt)) for s in sequences]


@pytest.mark.parametrize("name", SHAPES)
def test_log_probs_equal_those_of_each_sequence_alone(
    name: str, make_policy: Callable[..., Policy], plain_model: Any
) -> None:
    sequences = SHAPES[name]
    got = make_policy(acting=False).log_probs(everything_after(1, sequences), 0.7)
    for sequence, log_probs in zip(sequences, got, strict=True):
        torch.testing.assert_close(log_probs, plain_log_probs(plain_model, sequence, 0.7), atol=1e-4, rtol=0)


@pytest.mark.parametrize("seed", range(5))
def test_random_trees(seed: int, make_policy: Callable[..., Policy], plain_model: Any) -> None:
    """Few different tokens, so that prefixes coincide at every depth."""
    draw = torch.Generator().manual_seed(seed)
    sequences = [
        (torch.randint(0, 2, (int(n),), generator=draw) + 20).tolist()
        for n in torch.randint(1, 12, (9,), generator=draw)
    ]
    got = make_policy(acting=False).log_probs(everything_after(1, sequences), 1.0)
    for sequence, log_probs in zip(sequences, got, strict=True):
        torch.testing.assert_close(log_probs, plain_log_probs(plain_model, sequence), atol=1e-4, rtol=0)


def test_the_comparison_can_fail(plain_model: Any) -> None:
    """Weights are large enough that one changed token far back is seen well above the tolerance."""
    first = plain_log_probs(plain_model, [*TRUNK, 50])
    second = plain_log_probs(plain_model, [99, *TRUNK[1:], 50])
    assert abs(float(first[-1] - second[-1])) > 1e-2


def test_only_masked_tokens_are_returned(make_policy: Callable[..., Policy], plain_model: Any) -> None:
    tokens, mask = [*TRUNK, 50, 51, 52, 53, 54], [1, 0, 0, 1, 1]
    (got,) = make_policy(acting=False).log_probs([Trajectory(tokens, mask)], 1.0)
    want = plain_log_probs(plain_model, tokens)[-5:][torch.tensor(mask).bool()]
    torch.testing.assert_close(got, want, atol=1e-4, rtol=0)


def test_shared_tokens_are_nodes_only_once() -> None:
    tree = pack(SHAPES["groups below a trunk"])
    assert len(tree.ids) == 30 + 2 * 3 + 6 * 2
    assert [b.end - b.start for b in tree.blocks] == [30, 9, 9]
    assert [[tree.ids[node] for node in path] for path in tree.where] == SHAPES["groups below a trunk"]
    assert [[tree.positions[node] for node in path] for path in tree.where] == [list(range(35))] * 6


@pytest.mark.parametrize("sequences", [[], [[]], [[1], []]])
def test_empty_input_is_refused(sequences: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="at least one sequence"):
        pack(sequences)


def test_gradients_equal_those_of_each_sequence_alone(make_policy: Callable[..., Policy]) -> None:
    sequences = everything_after(20, SHAPES["groups below a trunk"])
    weights = [torch.randn(15, generator=torch.Generator().manual_seed(n)) for n in range(6)]

    def gradient(batches: list[list[int]]) -> dict[str, torch.Tensor]:
        policy = make_policy()
        for batch in batches:
            log_probs = policy.log_probs([sequences[n] for n in batch], 0.7)
            sum((p * weights[n]).sum() for p, n in zip(log_probs, batch, strict=True)).backward()  # pyright: ignore
        return {name: p.grad.clone() for name, p in policy.trainable.items() if p.grad is not None}

    packed, alone = gradient([[0, 1, 2, 3, 4, 5]]), gradient([[n] for n in range(6)])
    assert packed.keys() == alone.keys()
    for name, value in packed.items():
        torch.testing.assert_close(value, alone[name], atol=1e-4, rtol=1e-4)
        assert float(value.abs().max()) > 1e-3

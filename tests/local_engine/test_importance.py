"""Weights of samples from an older policy, and the gradient that they give."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from local_engine.grpo import GrpoTrainer, TrainSample
from local_engine.importance import Truncation, importance_ratios, truncated
from local_engine.policy import LoraSettings, Policy
from tests.local_engine.test_grpo import assert_same, recorded, samples, settings


def test_ratios_and_bounds_by_hand() -> None:
    trainer = torch.tensor([0.5, 0.2, 0.9, 0.1]).log()
    rollout = torch.tensor([0.5, 0.8, 0.1, 0.2]).log()
    ratios = importance_ratios(trainer, rollout)
    torch.testing.assert_close(ratios, torch.tensor([1.0, 0.25, 9.0, 0.5]))
    torch.testing.assert_close(truncated(ratios, Truncation(0.0, 2.0)), torch.tensor([1.0, 0.25, 2.0, 0.5]))
    torch.testing.assert_close(truncated(ratios, Truncation(0.5, 4.0)), torch.tensor([1.0, 0.5, 4.0, 0.5]))


def test_an_untruncated_weight_gives_the_expectation_under_the_trained_policy() -> None:
    """Over all tokens of a vocabulary: E_rollout[w f] = E_trainer[f]; with a bound it is smaller."""
    draw = torch.Generator().manual_seed(1)
    trainer, rollout = (torch.log_softmax(torch.randn(50, generator=draw) * 2, -1) for _ in range(2))
    value = torch.rand(50, generator=draw)
    ratios = importance_ratios(trainer, rollout)
    wanted = float((trainer.exp() * value).sum())
    assert float((rollout.exp() * ratios * value).sum()) == pytest.approx(wanted, rel=1e-4)
    assert float((rollout.exp() * truncated(ratios, Truncation(0.0, 2.0)) * value).sum()) < wanted


def weighted_gradient(policy: Policy, groups: list[list[TrainSample]], bounds: Truncation) -> list[torch.Tensor]:
    """Every sequence in a pass of its own, every token's weight a number."""
    every = [s for g in groups for s in g]
    for s in every:
        (now,) = policy.log_probs([s.trajectory], 0.7)
        loss = torch.zeros(())
        for p, recorded_ in zip(now, s.rollout_log_probs, strict=True):
            weight = min(max(math.exp(float(p.detach()) - recorded_), bounds.low), bounds.high)
            loss = loss - weight * torch.exp(p - p.detach()) * s.advantage
        (loss / len(now) / len(every)).backward()
    found = [p.grad.clone() for p in policy.trainable.values() if p.grad is not None]
    policy.model.zero_grad(set_to_none=True)
    return found


def older(policy: Policy) -> list[list[TrainSample]]:
    """Every other token was four times as likely to the policy that sampled it, the others a third as likely."""
    groups = samples(policy)
    for s in (s for g in groups for s in g):
        s.rollout_log_probs = [p + math.log(4.0 if n % 2 else 1 / 3) for n, p in enumerate(s.rollout_log_probs)]
    return groups


def test_the_gradient_of_older_samples_is_that_of_a_plain_implementation(make_policy: Callable[..., Policy]) -> None:
    policy = make_policy()
    groups, bounds = older(policy), Truncation(0.0, 2.0)
    trainer, recorder = recorded(policy, truncation=bounds)
    metrics = trainer.train(groups)
    assert_same(recorder.gradients[0], weighted_gradient(policy, groups, bounds))
    tokens = [n % 2 for g in groups for s in g for n in range(len(s.rollout_log_probs))]
    assert metrics.truncated_fraction == pytest.approx(1 - sum(tokens) / len(tokens))  # 3 is cut to 2, 1/4 is not
    assert metrics.importance_ratio == pytest.approx(
        sum(0.25 if odd else 3.0 for odd in tokens) / len(tokens), rel=1e-3
    )


def test_samples_of_the_trained_weights_count_as_without_correction(make_policy: Callable[..., Policy]) -> None:
    policy = make_policy()
    gradients: list[list[torch.Tensor]] = []
    for truncation in (None, Truncation(0.0, 2.0)):
        trainer, recorder = recorded(policy, truncation=truncation)
        metrics = trainer.train(samples(policy))
        gradients.append(recorder.gradients[0])
        assert metrics.importance_ratio == (None if truncation is None else pytest.approx(1.0, abs=1e-4))
    assert_same(*gradients)


def test_the_weight_is_that_before_the_first_of_several_steps(make_policy: Callable[..., Policy]) -> None:
    """PPO's ratio follows the steps of a rollout, the importance weight does not."""
    policy = make_policy()
    trainer = GrpoTrainer(policy, settings(lr=0.05, truncation=Truncation(0.0, 1e9)))
    metrics: Any = trainer.train(samples(policy, shift=-math.log(2.0)), optimizer_steps=3)
    assert metrics.optimizer_steps == 3
    assert metrics.importance_ratio == pytest.approx(2.0, rel=1e-3)


@pytest.mark.parametrize("truncation", [None, Truncation(0.0, 1e9)])
def test_dropout_is_no_age_of_the_samples(truncation: Truncation | None, make_policy: Callable[..., Policy]) -> None:
    """What a token is compared with comes from the whole model, as what the sampler records does."""
    policy = make_policy(LoraSettings(rank=4, alpha=8, dropout=0.5))
    groups = samples(policy)
    metrics = recorded(policy, truncation=truncation)[0].train(groups)
    assert metrics.log_prob_gap < 1e-4
    assert metrics.importance_ratio == (None if truncation is None else pytest.approx(1.0, abs=1e-4))
    for s in (s for g in groups for s in g):
        assert s.log_probs is not None
        assert s.log_probs.tolist() == pytest.approx(s.rollout_log_probs, abs=1e-4)

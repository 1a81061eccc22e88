"""Advantages, objective and update against numbers by hand and an implementation without packing or splitting."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from local_engine import grpo
from local_engine.grpo import GrpoSettings, GrpoTrainer, TrainSample, clipped_objective, group_advantages, low_var_kl
from local_engine.policy import Policy, Trajectory

SETTINGS: dict[str, Any] = {
    "lr": 1e-3,
    "warmup_steps": 0,
    "eps_clip": 0.2,
    "eps_clip_high": 0.28,
    "kl_loss_coef": 0.0,
    "weight_decay": 0.0,
    "max_grad_norm": 1e9,
    "temperature": 0.7,
}


def settings(**changes: Any) -> GrpoSettings:
    return GrpoSettings(**(SETTINGS | changes))


def samples(policy: Policy, shift: float = 0.0) -> list[list[TrainSample]]:
    """Three groups of unequal lengths, with holes in the masks; sampled by the policy itself up to `shift`."""
    draw = torch.Generator().manual_seed(3)
    groups: list[list[TrainSample]] = []
    for group in range(3):
        prompt = [*range(10, 30), *range(100 + 10 * group, 105 + 10 * group)]
        members: list[TrainSample] = []
        for advantage in (1.2, -0.7, -0.5):
            length = int(torch.randint(4, 12, (1,), generator=draw))
            tokens = torch.randint(10, 300, (length,), generator=draw).tolist()
            mask = [1, *(torch.rand(length - 1, generator=draw) > 0.3).int().tolist()]
            members.append(TrainSample(Trajectory(prompt + tokens, mask), advantage + 0.1 * group, []))
        groups.append(members)
    every = [s for g in groups for s in g]
    with torch.no_grad():
        for s, p in zip(every, policy.log_probs([s.trajectory for s in every], 0.7), strict=True):
            s.rollout_log_probs = (p + shift).tolist()
    return groups


class Recorder(torch.optim.SGD):
    """Keeps the gradient of every step and changes nothing."""

    def __init__(self, parameters: list[torch.nn.Parameter]) -> None:
        super().__init__(parameters, lr=0.0)
        self.gradients: list[list[torch.Tensor]] = []

    def step(self, closure: Any = None) -> None:  # pyright: ignore
        self.gradients.append([p.grad.clone() for g in self.param_groups for p in g["params"]])


def recorded(policy: Policy, **changes: Any) -> tuple[GrpoTrainer, Recorder]:
    trainer = GrpoTrainer(policy, settings(**changes))
    recorder = Recorder(list(policy.trainable.values()))
    trainer.optimizer = recorder  # pyright: ignore[reportAttributeAccessIssue]
    return trainer, recorder


def assert_same(got: list[torch.Tensor], want: list[torch.Tensor]) -> None:
    assert any(float(w.abs().max()) > 1e-4 for w in want)
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g, w, atol=2e-5, rtol=1e-3)


def plain_gradient(policy: Policy, groups: list[list[TrainSample]], kl_loss_coef: float = 0.0) -> list[torch.Tensor]:
    """Every sequence in a pass of its own; the objective in single numbers."""
    every = [s for g in groups for s in g]
    for s in every:
        (now,) = policy.log_probs([s.trajectory], 0.7)
        loss = torch.zeros(())
        ref = policy.log_probs([s.trajectory], 0.7, reference=True)[0].detach() if kl_loss_coef else now.detach()
        for p, r in zip(now, ref, strict=True):
            ratio = torch.exp(p - p.detach())
            loss = loss - ratio * s.advantage + kl_loss_coef * (torch.exp(r - p) - (r - p) - 1)
        (loss / len(now) / len(every)).backward()
    found = [p.grad.clone() for p in policy.trainable.values() if p.grad is not None]
    policy.model.zero_grad(set_to_none=True)
    return found


def test_advantages_by_hand() -> None:
    got = group_advantages([1.0, 0.0, 0.0, 1.0])
    std = math.sqrt(4 * 0.25 / 3)
    assert got == pytest.approx([0.5 / std, -0.5 / std, -0.5 / std, 0.5 / std], rel=1e-5)
    assert group_advantages([0.0, 3.0]) == pytest.approx([-(0.5**0.5), 0.5**0.5], rel=1e-5)


@pytest.mark.parametrize("rewards", [[0.0] * 4, [1.0] * 4, [0.3, 0.3 + 1e-9], [1.0], []])
def test_a_group_without_variance_gives_no_advantages(rewards: list[float]) -> None:
    if rewards:
        assert group_advantages(rewards) is None


def test_the_clipped_objective_by_hand() -> None:
    """Columns: inside the bounds, above and below them, each for a good and a bad action."""
    ratios = torch.tensor([1.1, 1.1, 1.5, 1.5, 0.5, 0.5, 1.28, 0.8])
    advantages = torch.tensor([2.0, -2.0, 2.0, -2.0, 2.0, -2.0, 2.0, -2.0])
    loss, clipped = clipped_objective(ratios.log(), torch.zeros(8), advantages, 0.2, 0.28)
    want = [-2.2, 2.2, -2 * 1.28, 3.0, -1.0, 1.6, -2.56, 1.6]
    torch.testing.assert_close(loss, torch.tensor(want), atol=1e-5, rtol=0)
    assert clipped.tolist()[:6] == [False, False, True, False, False, True]


def test_a_clipped_token_has_no_gradient() -> None:
    log_probs = torch.tensor([1.5, 1.5, 0.5, 0.5]).log().requires_grad_()
    loss, _ = clipped_objective(log_probs, torch.zeros(4), torch.tensor([1.0, -1.0, 1.0, -1.0]), 0.2, 0.28)
    loss.sum().backward()
    assert log_probs.grad is not None
    torch.testing.assert_close(log_probs.grad, torch.tensor([0.0, 1.5, -0.5, 0.0]))


def test_low_var_kl_by_hand() -> None:
    log_probs, reference = torch.tensor([-1.0, -1.0, -2.0, -30.0]), torch.tensor([-1.0, -2.0, -1.0, -1.0])
    want = torch.tensor([0.0, math.exp(-1), math.e - 2, 10.0])
    torch.testing.assert_close(low_var_kl(log_probs, reference), want, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kl_loss_coef", [0.0, 0.3])
def test_the_gradient_is_that_of_a_plain_implementation(
    kl_loss_coef: float, make_policy: Callable[..., Policy]
) -> None:
    policy = make_policy()
    groups = samples(policy)
    want = plain_gradient(policy, groups, kl_loss_coef)
    trainer, recorder = recorded(policy, kl_loss_coef=kl_loss_coef)
    metrics = trainer.train(groups)
    assert_same(recorder.gradients[0], want)
    assert metrics.tokens == sum(sum(s.trajectory.loss_mask) for g in groups for s in g)
    assert (metrics.kl > 0.01) == bool(kl_loss_coef)
    assert metrics.log_prob_gap == pytest.approx(0, abs=1e-4)
    assert metrics.clip_fraction == 0


@pytest.mark.parametrize("tokens", [1, 60, 100, 250])
def test_splitting_into_passes_does_not_change_the_gradient(
    tokens: int, make_policy: Callable[..., Policy], monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = make_policy()
    groups = samples(policy)
    trainer, recorder = recorded(policy)
    whole = trainer.train(groups)
    monkeypatch.setattr(grpo, "TOKENS_PER_PASS", tokens)
    assert len(list(grpo.passes(groups))) > 1
    for s in (s for g in groups for s in g):
        s.log_probs = None
    split = trainer.train(groups)
    assert_same(recorder.gradients[1], recorder.gradients[0])
    assert split.tokens == whole.tokens
    assert split.loss == pytest.approx(whole.loss, abs=1e-5)


def test_passes_keep_every_sample_once_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpo, "TOKENS_PER_PASS", 10)
    lengths = [[3, 3], [2, 2], [9, 9, 9], [25], [1]]
    groups = [[TrainSample(Trajectory([1] * n, [1]), 0.0, []) for n in group] for group in lengths]
    got = list(grpo.passes(groups))
    assert [s for part in got for s in part] == [s for g in groups for s in g]
    assert all(len(part) == 1 or sum(len(s.trajectory.tokens) for s in part) <= 10 for part in got)
    assert len(got[0]) == 4


def test_several_steps_use_the_log_probs_from_before_the_first(make_policy: Callable[..., Policy]) -> None:
    policy = make_policy()
    groups = samples(policy, shift=0.5)
    before = {id(s): p for g in groups for s, p in zip(g, _own(policy, g), strict=True)}
    trainer = GrpoTrainer(policy, settings(lr=0.02))
    metrics = trainer.train(groups, 3)
    assert metrics.optimizer_steps == trainer.steps == 3
    assert metrics.tokens == sum(sum(s.trajectory.loss_mask) for g in groups for s in g)
    for s in (s for g in groups for s in g):
        assert s.log_probs is not None
        torch.testing.assert_close(s.log_probs, before[id(s)], atol=1e-4, rtol=0)
    # The later steps see a policy that has moved from those numbers, and clip it.
    assert metrics.clip_fraction > 0
    assert metrics.log_prob_gap == pytest.approx(0.5, abs=1e-3)


def _own(policy: Policy, group: list[TrainSample]) -> list[torch.Tensor]:
    with torch.no_grad():
        return policy.log_probs([s.trajectory for s in group], 0.7)


def test_an_update_makes_good_actions_likelier(make_policy: Callable[..., Policy]) -> None:
    policy = make_policy()
    groups = samples(policy)
    every = [s for g in groups for s in g]
    before = torch.stack([p.mean() for p in _own(policy, every)])
    trainer = GrpoTrainer(policy, settings(lr=3e-3))
    for _ in range(5):
        for s in every:
            s.log_probs = None
        trainer.train(groups)
    after = torch.stack([p.mean() for p in _own(policy, every)])
    signs = torch.tensor([s.advantage for s in every]).sign()
    assert float(((after - before) * signs).mean()) > 0.05


def test_warm_up_raises_the_learning_rate_step_by_step(make_policy: Callable[..., Policy]) -> None:
    policy = make_policy()
    trainer = GrpoTrainer(policy, settings(lr=0.3, warmup_steps=3))
    rates: list[float] = []
    for _ in range(4):
        recorder = Recorder(list(policy.trainable.values()))
        trainer.optimizer = recorder  # pyright: ignore[reportAttributeAccessIssue]
        trainer.train(samples(policy)[:1])
        rates.append(recorder.param_groups[0]["lr"])
    assert rates == pytest.approx([0.1, 0.2, 0.3, 0.3])


def test_nothing_with_signal_is_no_step(make_policy: Callable[..., Policy]) -> None:
    policy = make_policy()
    before = policy.state()
    trainer = GrpoTrainer(policy, settings())
    untrainable = [TrainSample(Trajectory([1, 2, 3], [0, 0]), 1.0, [])]
    for groups in ([], [untrainable]):
        metrics = trainer.train(groups)
        assert (metrics.optimizer_steps, metrics.tokens) == (0, 0)
    assert all(torch.equal(p, before[name]) for name, p in policy.state().items())


def test_a_gradient_that_is_not_finite_leaves_the_weights(make_policy: Callable[..., Policy]) -> None:
    policy = make_policy()
    groups = samples(policy)
    groups[0][0].advantage = float("nan")
    before = policy.state()
    trainer = GrpoTrainer(policy, settings())
    with pytest.raises(FloatingPointError, match="lower --lr"):
        trainer.train(groups)
    assert all(torch.equal(p, before[name]) for name, p in policy.state().items())
    assert trainer.steps == 0


def test_the_trainer_goes_on_from_its_state(make_policy: Callable[..., Policy]) -> None:
    """Two steps, against one step, a new trainer with its state, and one more."""

    def train(trainer: GrpoTrainer) -> None:
        trainer.train(samples(trainer.policy))

    straight = GrpoTrainer(make_policy(), settings(warmup_steps=5))
    train(straight)
    first = GrpoTrainer(make_policy(), settings(warmup_steps=5))
    train(first)
    second = GrpoTrainer(make_policy(acting=False), settings(warmup_steps=5))
    second.policy.load_state(first.policy.state())
    second.load_state(first.state())
    train(straight)
    train(second)
    assert second.steps == 2
    assert all(torch.equal(p, straight.policy.state()[name]) for name, p in second.policy.state().items())

"""Group relative policy optimization: advantages, the clipped objective, and one optimizer step.

Formulas: DeepSeekMath (arXiv 2402.03300, eq. 3: group-normalised advantage), PPO's clipped surrogate (arXiv
1707.06347, eq. 7) with separate lower and upper bounds (DAPO, arXiv 2503.14476, eq. 10), and Schulman's k3 estimator of
the KL divergence (`low_var_kl`). Samples of older weights: `local_engine.importance`.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false
# PyTorch has no complete types.

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import batched
from typing import Any

import torch
from torch import Tensor

from local_engine.importance import Truncation, importance_ratios, truncated
from local_engine.policy import Policy, Trajectory

STD_EPSILON = 1e-6  # below it a group's rewards are equal
MEANS = ("loss", "kl", "clip_fraction", "entropy_proxy", "log_prob_gap", "importance_ratio", "truncated_fraction")
TOKENS_PER_PASS = 6_000  # of all samples, shared prefixes counted each time; bounds the memory of one backward pass


@dataclass(frozen=True)
class GrpoSettings:
    """lr per optimizer step after `warmup_steps`; clip bounds 1 - eps_clip and 1 + eps_clip_high."""

    lr: float
    warmup_steps: int
    eps_clip: float
    eps_clip_high: float
    kl_loss_coef: float
    weight_decay: float
    max_grad_norm: float
    temperature: float
    truncation: Truncation | None = None  # of the weights of samples from an older policy; None = all count 1


@dataclass
class TrainSample:
    """One trajectory with its advantage. `log_probs` are the policy's own before the update, filled in by `train`."""

    trajectory: Trajectory
    advantage: float
    rollout_log_probs: list[float]  # of the tokens the mask selects
    log_probs: Tensor | None = None


@dataclass
class TrainMetrics:
    """Means over trained tokens, except grad_norm (mean over optimizer steps) and counts."""

    loss: float = 0.0
    kl: float = 0.0
    clip_fraction: float = 0.0
    grad_norm: float = 0.0
    entropy_proxy: float = 0.0
    log_prob_gap: float = 0.0
    tokens: int = 0
    optimizer_steps: int = 0
    importance_ratio: float | None = None  # before truncation; None without a correction
    truncated_fraction: float | None = None


def group_advantages(rewards: Sequence[float]) -> list[float] | None:
    """(r - mean) / (std + 1e-6) over one group, std unbiased; None when all rewards are equal: no signal."""
    r = torch.tensor(rewards, dtype=torch.float64)
    if len(rewards) < 2 or float(r.max() - r.min()) < STD_EPSILON:
        return None
    return ((r - r.mean()) / (r.std() + STD_EPSILON)).tolist()


def clipped_objective(
    log_probs: Tensor, old: Tensor, advantages: Tensor, eps_clip: float, eps_clip_high: float
) -> tuple[Tensor, Tensor]:
    """Per-token loss (to minimise) and whether the clip was active; all (tokens,)."""
    ratio = torch.exp(log_probs - old)
    plain, clipped = ratio * advantages, ratio.clamp(1 - eps_clip, 1 + eps_clip_high) * advantages
    return -torch.minimum(plain, clipped), clipped < plain


def low_var_kl(log_probs: Tensor, reference: Tensor) -> Tensor:
    """Schulman's k3: exp(ref - lp) - (ref - lp) - 1, per token, at most 10 as in public GRPO codes."""
    gap = (reference - log_probs).clamp(-20, 20)
    return (torch.exp(gap) - gap - 1).clamp(max=10)


def passes(groups: Sequence[Sequence[TrainSample]]) -> Iterator[list[TrainSample]]:
    """Whole groups, as many as fit into one forward and backward pass; a group that is larger is split."""
    held: list[TrainSample] = []
    tokens = 0
    for group in groups:
        size = sum(len(s.trajectory.tokens) for s in group)
        if held and tokens + size > TOKENS_PER_PASS:
            yield held
            held, tokens = [], 0
        for sample in group:
            if held and tokens + len(sample.trajectory.tokens) > TOKENS_PER_PASS:
                yield held
                held, tokens = [], 0
            held.append(sample)
            tokens += len(sample.trajectory.tokens)
    if held:
        yield held


class GrpoTrainer:
    """AdamW on the policy's trained parameters; one call of `train` is one rollout's worth of updates."""

    def __init__(self, policy: Policy, settings: GrpoSettings) -> None:
        self.policy = policy
        self.settings = settings
        self.optimizer = torch.optim.AdamW(
            list(policy.trainable.values()),
            lr=settings.lr,
            betas=(0.9, 0.99),
            weight_decay=settings.weight_decay,
        )
        self.steps = 0

    def train(self, groups: Sequence[Sequence[TrainSample]], optimizer_steps: int = 1) -> TrainMetrics:
        """Update on groups that carry signal; the loss is a mean over samples of the mean over each one's tokens.

        Raises FloatingPointError when the gradient is not finite; the weights are then unchanged by that step.
        """
        metrics = TrainMetrics()
        groups = [[s for s in g if any(s.trajectory.loss_mask)] for g in groups]
        groups = [g for g in groups if g]
        if not groups:
            return metrics
        if optimizer_steps > 1 or self.policy.dropout:
            with torch.no_grad():
                for samples in passes(groups):
                    for s, p in zip(samples, self._log_probs(samples), strict=True):
                        s.log_probs = p
        per_step = -(-len(groups) // optimizer_steps)
        for part in batched(groups, per_step):
            self._update(part, metrics)
        if metrics.tokens:
            for name in MEANS:
                total = getattr(metrics, name)
                setattr(metrics, name, None if total is None else total / metrics.tokens)
        metrics.grad_norm /= max(1, metrics.optimizer_steps)
        return metrics

    def _log_probs(self, samples: Sequence[TrainSample], reference: bool = False) -> list[Tensor]:
        return self.policy.log_probs([s.trajectory for s in samples], self.settings.temperature, reference=reference)

    def _update(self, groups: Sequence[Sequence[TrainSample]], metrics: TrainMetrics) -> None:
        total = sum(len(g) for g in groups)
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.lr * min(1.0, (self.steps + 1) / max(1, self.settings.warmup_steps))
        for samples in passes(groups):
            current = self._log_probs(samples)
            reference = None
            if self.settings.kl_loss_coef:
                with torch.no_grad():
                    reference = self._log_probs(samples, reference=True)
            loss = self._loss(samples, current, reference, total, metrics)
            loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(list(self.policy.trainable.values()), self.settings.max_grad_norm)
        if not bool(torch.isfinite(norm)):
            self.optimizer.zero_grad(set_to_none=True)
            raise FloatingPointError(f"gradient norm is {float(norm)} at optimizer step {self.steps}; lower --lr")
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.steps += 1
        metrics.optimizer_steps += 1
        metrics.grad_norm += float(norm)

    def _loss(
        self,
        samples: Sequence[TrainSample],
        current: Sequence[Tensor],
        reference: Sequence[Tensor] | None,
        total: int,
        metrics: TrainMetrics,
    ) -> Tensor:
        device = current[0].device
        for s, p in zip(samples, current, strict=True):
            if s.log_probs is None:
                s.log_probs = p.detach()
        lengths = torch.tensor([len(p) for p in current], device=device)
        log_probs, old = torch.cat(list(current)), torch.cat([_kept(s) for s in samples])
        advantages = torch.tensor([s.advantage for s in samples], device=device).repeat_interleave(lengths)
        weights = (1.0 / (lengths * total)).repeat_interleave(lengths)
        per_token, clipped = clipped_objective(
            log_probs, old, advantages, self.settings.eps_clip, self.settings.eps_clip_high
        )
        rollout = torch.tensor([p for s in samples for p in s.rollout_log_probs], device=device)
        if self.settings.truncation is not None:
            ratios = importance_ratios(old, rollout)
            weight = truncated(ratios, self.settings.truncation)
            per_token = per_token * weight
            metrics.importance_ratio = (metrics.importance_ratio or 0.0) + float(ratios.sum())
            metrics.truncated_fraction = (metrics.truncated_fraction or 0.0) + float((weight != ratios).sum())
        if reference is not None:
            kl = low_var_kl(log_probs, torch.cat(list(reference)))
            per_token = per_token + self.settings.kl_loss_coef * kl
            metrics.kl += float(kl.detach().sum())
        metrics.log_prob_gap += float((rollout - old).abs().sum())
        metrics.loss += float(per_token.detach().sum())
        metrics.clip_fraction += float(clipped.sum())
        metrics.entropy_proxy -= float(log_probs.detach().sum())
        metrics.tokens += len(log_probs)
        return (per_token * weights).sum()

    def state(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer.state_dict(), "steps": self.steps}

    def load_state(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        self.steps = int(state["steps"])


def _kept(sample: TrainSample) -> Tensor:
    if sample.log_probs is None:
        raise RuntimeError("log-probabilities before the update were not computed")
    return sample.log_probs

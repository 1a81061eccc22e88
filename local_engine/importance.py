"""Off-policy correction: how much a token counts that another policy than the trained one has sampled.

Truncated importance sampling: Ionides 2008, "Truncated Importance Sampling", J. Comput. Graph. Stat. 17(2); per
token between a rollout engine and a trainer: Yao et al. 2025, https://fengyao.notion.site/off-policy-rl. As in Miles'
`--use-tis` the weight multiplies the clipped objective, whose own ratio stays that of the trainer to itself.
"""

# pyright: reportUnknownMemberType=false
# PyTorch has no complete types.

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Truncation:
    """Bounds of a token's weight, 0 <= low <= 1 <= high."""

    low: float
    high: float


def importance_ratios(trainer: Tensor, rollout: Tensor) -> Tensor:
    """exp(trainer - rollout), per token; log-probabilities (tokens,) at the same temperature.

    `trainer`: recomputed with the weights before the update; `rollout`: what the sampler recorded when it drew the
    token. Both compute the same model, so with equal weights the ratio is 1 but for rounding; what is left is the age
    of the sampler's weights.
    """
    return torch.exp(trainer - rollout)


def truncated(ratios: Tensor, bounds: Truncation) -> Tensor:
    """min(max(ratio, low), high), per token: biased towards the sampler's policy, with bounded variance."""
    return ratios.clamp(bounds.low, bounds.high)

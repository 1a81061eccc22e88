"""Every update of a run, computed again from its files alone: one sequence at a time, through the library's own model.

Nothing of the trainer takes part: advantages, importance weights, loss, clipping of the gradient and AdamW are
written out here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from local_engine.config import Asynchrony, LocalRunConfig
from local_engine.loop import run
from local_engine.pretrained import load_causal_lm
from tests.end_to_end.run_parts import change, dump, metrics

LOW, HIGH = 0.9, 1.1
CLIP = (1 - 0.2, 1 + 0.28)
BETAS, EPSILON = (0.9, 0.99), 1e-8


@dataclass(frozen=True)
class Update:
    """What the files say before and after one step."""

    before: dict[str, Any]
    after: dict[str, Any]
    samples: list[dict[str, Any]]


def read_update(config: LocalRunConfig, rollout_id: int) -> Update:
    before, after = (
        torch.load(config.save_dir / f"iter_{n:07d}" / "trainer.pt", weights_only=True)
        for n in (rollout_id - 1, rollout_id)
    )
    return Update(before, after, dump(config, f"rollout_data/{rollout_id}.pt")["samples"])


def advantages(samples: list[dict[str, Any]]) -> list[float | None]:
    """(r - mean) / (unbiased std + 1e-6) within a group; None where all of its rewards are equal."""
    groups: dict[int, list[float]] = {}
    for sample in samples:
        groups.setdefault(sample["group_index"], []).append(float(sample["reward"]))
    found: list[float | None] = []
    for sample in samples:
        rewards = groups[sample["group_index"]]
        mean = sum(rewards) / len(rewards)
        std = math.sqrt(sum((r - mean) ** 2 for r in rewards) / (len(rewards) - 1))
        found.append((float(sample["reward"]) - mean) / (std + 1e-6) if max(rewards) > min(rewards) else None)
    return found


def adapted_model(config: LocalRunConfig, weights: dict[str, Tensor]) -> Any:
    """The base model with x A' B' alpha / rank added behind every layer that has an adapter."""
    model: Any = load_causal_lm(
        str(config.hf_checkpoint), dtype=torch.float32, attention="eager", device=torch.device("cpu")
    ).eval()
    layers = dict(model.named_modules())
    for name in [name for name in weights if ".lora_A." in name]:
        first, second = weights[name], weights[name.replace(".lora_A.", ".lora_B.")]

        def add(_: Any, given: Any, out: Tensor, first: Tensor = first, second: Tensor = second) -> Tensor:
            return out + given[0] @ first.T @ second.T * (config.lora_alpha / config.lora_rank)

        layers[name.removeprefix("base_model.model.").split(".lora_A.")[0]].register_forward_hook(add)
    return model


def log_probs_of(model: Any, sample: dict[str, Any], temperature: float) -> Tensor:
    """Of the tokens that the mask selects."""
    ids = torch.tensor([sample["tokens"]])
    logits = model(input_ids=ids, use_cache=False).logits[0, :-1] / temperature
    every = torch.log_softmax(logits, -1).gather(1, ids[0, 1:, None])[:, 0]
    return every[-sample["response_length"] :][torch.tensor(sample["loss_mask"]).bool()]


def stepped(config: LocalRunConfig, update: Update, gradients: dict[str, Tensor]) -> dict[str, Tensor]:
    """AdamW without decay, after the gradient is cut to its largest norm."""
    norm = math.sqrt(sum(float((g**2).sum()) for g in gradients.values()))
    weights: dict[str, Tensor] = {}
    for place, (name, gradient) in enumerate(gradients.items()):
        cut = gradient * min(1.0, config.max_grad_norm / (norm + 1e-6))
        state = update.before["optimizer"]["state"].get(place, {"step": 0, "exp_avg": 0, "exp_avg_sq": 0})
        step = float(state["step"]) + 1
        first = BETAS[0] * state["exp_avg"] + (1 - BETAS[0]) * cut
        second = BETAS[1] * state["exp_avg_sq"] + (1 - BETAS[1]) * cut**2
        change_ = (first / (1 - BETAS[0] ** step)) / ((second / (1 - BETAS[1] ** step)).sqrt() + EPSILON)
        # Where the gradient is rounding, Adam makes a whole step of it.
        change_[cut.abs() < 1e-5 * cut.abs().max()] = math.nan
        weights[name] = update.before["weights"][name] - config.lr * change_
    return weights


@pytest.mark.long
@pytest.mark.parametrize("mode", ["retract", "in_place"])
def test_weights_and_numbers_of_an_asynchronous_run_follow_from_its_files(
    mode: Any, shared_server: LocalRunConfig, tmp_path: Path
) -> None:
    config = change(
        shared_server, tmp_path / "run", asynchrony=Asynchrony(2, mode, HIGH, LOW), deterministic=False,
        num_rollout=5, n_samples_per_prompt=6, global_batch_size=12,
    )  # fmt: skip
    assert run(config) == 0
    trained = 0
    for row in metrics(config)[1:]:
        update = read_update(config, row["rollout_id"])
        pairs = [(s, a) for s, a in zip(update.samples, advantages(update.samples), strict=True) if a is not None]
        if not pairs:
            assert all(torch.equal(w, update.after["weights"][name]) for name, w in update.before["weights"].items())
            continue
        weights = {name: w.clone().requires_grad_() for name, w in update.before["weights"].items()}
        model = adapted_model(config, weights)
        ratios, losses = list[Tensor](), list[Tensor]()
        for sample, advantage in pairs:
            now = log_probs_of(model, sample, config.temperature)
            sampled = torch.tensor(sample["rollout_log_probs"])[torch.tensor(sample["loss_mask"]).bool()]
            ratio, weight = torch.exp(now - now.detach()), torch.exp(now.detach() - sampled)
            objective = torch.minimum(ratio * advantage, ratio.clamp(*CLIP) * advantage)
            losses.append(-objective * weight.clamp(LOW, HIGH))
            ratios.append(weight)
        torch.stack([loss.mean() for loss in losses]).mean().backward()
        every = torch.cat(ratios)
        assert row["train_tokens"] == len(every)
        assert row["train_loss"] == pytest.approx(float(torch.cat(losses).mean().detach()), abs=1e-4)
        assert row["train_importance_ratio"] == pytest.approx(float(every.mean()), rel=1e-3)
        cut = ((every < LOW) | (every > HIGH)).float().mean()
        assert row["train_truncated_fraction"] == pytest.approx(float(cut), abs=0.02)
        gradients = {name: w.grad for name, w in weights.items() if w.grad is not None}
        for name, wanted in stepped(config, update, gradients).items():
            known = ~wanted.isnan()
            torch.testing.assert_close(update.after["weights"][name][known], wanted[known], atol=config.lr / 50, rtol=0)
        trained += 1
    assert trained

"""What a plan takes: GiB on a GPU in training and in rollout, in a node's RAM, on disk.

Trainer, of one GPU:
  weights       2 B x (routed experts / (EP x ETP) + everything else / TP), the MTP layer included
  gradients     4 B (2 B where they are reduced in bf16) x the trainable ones of these
  optimizer     12 B (fp32 weights and Adam's two moments) x the trainable ones / data parallel; or on the host
  activations   with full recompute, of the longest micro-batch: tokens x (2 B x layers x hidden + 10 B x vocabulary
                + 34 B x hidden x experts a token) / TP; 34 B x hidden is a layer's share in Korthikanti et al. 2022
                (arXiv 2205.05198), 10 B x vocabulary its logits in bf16 with fp32 copies for loss and gradient
  without recompute every layer keeps the last term (of one expert where they are frozen), and dense DSA attention
  6 B x heads / TP x tokens^2 a layer
Rollout, of one GPU:
  weights       of the served checkpoint: experts / engine GPUs + everything else / attention TP
  KV cache      sessions of an engine / attention DP x tokens of a session x B a token (no split by TP: MLA)
  static        the fraction of the GPU that SGLang keeps for both
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from launcher.miles.parallel import EngineSizes, ParallelSizes
from launcher.model_shape import BF16, ModelShape

GIB = 2**30
H200_GIB = 140.4
_OPTIMIZER = 12  # bytes: fp32 weight and Adam's two moments
_SAFE_SHARE = 0.95  # of a GPU; the rest goes to CUDA, NCCL and fragmentation
_FORMULA = (
    "trainer = weights 2 B x (experts/EP + rest/TP) + gradients + optimizer/DP + activations of the longest "
    "micro-batch; rollout = weights of the engine + KV cache of its sessions; in full: launcher/miles/memory.py"
)


@dataclass(frozen=True)
class Training:
    """What decides the trainer's memory."""

    sizes: ParallelSizes
    tokens: int  # of the longest micro-batch
    gradient_bytes: int
    optimizer_offloaded: bool
    recompute: bool = True
    adapter_parameters: int | None = None  # outside the routed experts; None: every weight is trained
    expert_adapter_parameters: int = 0
    dense_scores: bool = False  # DSA computed densely, scores of all token pairs in memory


@dataclass(frozen=True)
class Serving:
    """What decides the engines' memory."""

    sizes: EngineSizes
    weight_bytes: int
    static_fraction: float
    in_flight: int  # sessions over all engines
    tokens: int  # of a session


@dataclass(frozen=True)
class Verdict:
    """Whether a plan fits; `sentence` has the numbers."""

    fits: bool
    sentence: str


def trainer_gib(shape: ModelShape, training: Training) -> dict[str, float]:
    """GiB of one training GPU by part, and their total."""
    sizes = training.sizes
    experts = shape.expert_parameters / (sizes.expert * sizes.expert_tensor)
    rest = shape.shared_parameters / sizes.tensor
    mtp = shape.mtp_parameters / (sizes.expert * sizes.expert_tensor)
    held, adapter = experts + rest + mtp, 0.0
    if training.adapter_parameters is None:
        gradients = training.gradient_bytes * held
        optimizer = _OPTIMIZER * (rest / sizes.data + (experts + mtp) / sizes.expert_data)
    else:
        outside = training.adapter_parameters / sizes.tensor
        inside = training.expert_adapter_parameters / (sizes.expert * sizes.expert_tensor)
        adapter = outside + inside
        gradients = training.gradient_bytes * adapter
        optimizer = _OPTIMIZER * (outside / sizes.data + inside / sizes.expert_data)
    parts = {
        "expert_weights": BF16 * experts,
        "other_weights": BF16 * (rest + mtp),
        **({"adapter": BF16 * adapter} if training.adapter_parameters is not None else {}),
        "gradients": gradients,
        "optimizer": 0.0 if training.optimizer_offloaded else optimizer,
        "activations": _activations(shape, training),
    }
    return _gib(parts | {"total": sum(parts.values())})


def rollout_gib(shape: ModelShape, serving: Serving, gpu_gib: float) -> dict[str, float]:
    """GiB of one rollout GPU: weights, KV cache that all its sessions can grow to, and what SGLang reserves."""
    sizes = serving.sizes
    rest = shape.shared_parameters / sizes.attention_tensor
    weights = serving.weight_bytes * (shape.expert_parameters / sizes.gpus + rest)
    session = serving.tokens * shape.kv_bytes_per_token
    sessions = math.ceil(math.ceil(serving.in_flight / sizes.count) / sizes.attention_data)
    return _gib(
        {
            "weights": weights,
            "kv_cache": sessions * session,
            "kv_cache_of_one_session": session,
            "static": serving.static_fraction * gpu_gib * GIB,
        }
    ) | {"sessions": sessions}


def trainer_weights_gib(shape: ModelShape, training: Training) -> float:
    """Of one training GPU: what is moved away during rollout where only an adapter is trained."""
    parts = trainer_gib(shape, training)
    return round(parts["expert_weights"] + parts["other_weights"], 1)


def engine_weights_gib(shape: ModelShape, serving: Serving) -> float:
    """Of one rollout GPU."""
    return rollout_gib(shape, serving, H200_GIB)["weights"]


def estimate(
    shape: ModelShape, training: Training | None, serving: Serving, gpu_gib: float, more: Mapping[str, Any]
) -> dict[str, Any]:
    """The `memory` part of a plan; `training` is None where nothing is trained."""
    trainer = trainer_gib(shape, training) if training is not None else None
    rollout = rollout_gib(shape, serving, gpu_gib)
    verdict = judge(trainer, rollout, gpu_gib)
    return {
        "gpu_gib": gpu_gib,
        **({"trainer_gib_per_gpu": trainer} if trainer is not None else {}),
        "rollout_gib_per_gpu": rollout,
        **more,
        "fits": verdict.fits,
        "verdict": verdict.sentence,
        "formula": _FORMULA,
    }


def judge(trainer: Mapping[str, float] | None, rollout: Mapping[str, float], gpu_gib: float) -> Verdict:
    """Training must fit whole; an engine must hold its weights and one session, more of them wait for their turn."""
    usable = _SAFE_SHARE * gpu_gib
    if trainer is not None and trainer["total"] > usable:
        parts = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in trainer.items() if name != "total")
        return Verdict(
            False, f"the trainer takes {trainer['total']:g} GiB a GPU ({parts}), a GPU has {usable:.0f} usable"
        )
    pool = rollout["static"] - rollout["weights"]
    if pool < rollout["kv_cache_of_one_session"]:
        return Verdict(
            False,
            f"an engine's weights take {rollout['weights']:g} of {rollout['static']:g} GiB reserved on a GPU, which "
            f"leaves {pool:.1f} for the KV cache; one session takes {rollout['kv_cache_of_one_session']:g}",
        )  # fmt: skip
    if pool < rollout["kv_cache"]:
        return Verdict(
            True,
            f"{rollout['sessions']:g} sessions on a rollout GPU can grow to {rollout['kv_cache']:g} GiB of KV cache "
            f"and {pool:.1f} are there: some will be retracted and computed again",
        )  # fmt: skip
    trained = f"trainer {trainer['total']:g}" if trainer is not None else "no trainer"
    used = rollout["weights"] + rollout["kv_cache"]
    return Verdict(True, f"{trained}, rollout {used:.1f} of {rollout['static']:g} GiB reserved on a GPU of {gpu_gib:g}")


def checkpoint_bytes(shape: ModelShape, adapter_parameters: int | None) -> int:
    """Of one saved checkpoint: what is trained in bf16, fp32 and two moments."""
    trained = shape.parameters + shape.mtp_parameters if adapter_parameters is None else adapter_parameters
    return (BF16 + _OPTIMIZER) * trained


def host_optimizer_gib(shape: ModelShape, nodes: int) -> float:
    """RAM of a training node for an optimizer that is offloaded to it."""
    return round(_OPTIMIZER * (shape.parameters + shape.mtp_parameters) / nodes / GIB, 1)


def _activations(shape: ModelShape, training: Training) -> float:
    tokens, sizes = training.tokens, training.sizes
    # The experts of an adapter's base are frozen: nothing of them is kept for a gradient of their weights.
    copies = shape.top_k if training.adapter_parameters is None or training.recompute else 1
    layer = 34 * shape.hidden * copies
    layers = BF16 * shape.layers * shape.hidden + layer if training.recompute else shape.layers * layer
    spread = tokens * (layers + 10 * shape.vocabulary) / sizes.tensor
    scores = 6 * shape.layers * shape.heads / sizes.tensor * tokens**2 if training.dense_scores else 0
    return spread + scores


def _gib(parts: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value / GIB, 1) for name, value in parts.items()}

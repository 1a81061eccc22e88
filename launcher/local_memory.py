"""How much memory and disk a run of the local engine takes, from the checkpoint's config.json alone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from launcher.options import LocalOptions

GIB = 2**30
_FLOAT32 = 4  # bytes; trained weights, gradients and Adam's two moments are kept so whatever the activations are
_FORMULA = (
    "weights 4 B x parameters; gradients 4 B and Adam 8 B x trainable parameters; KV cache at most "
    "2 x layers x KV heads x head dim x 4 B x max sequence x trials at once"
)


@dataclass(frozen=True)
class Shape:
    """Sizes of a causal LM with a gated MLP."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool

    @property
    def linears(self) -> tuple[tuple[int, int], ...]:
        """(in, out) of the linear layers of one block."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return (
            (self.hidden, q), (self.hidden, kv), (self.hidden, kv), (q, self.hidden),
            (self.hidden, self.intermediate), (self.hidden, self.intermediate), (self.intermediate, self.hidden),
        )  # fmt: skip

    @property
    def parameters(self) -> int:
        blocks = self.layers * (sum(i * o for i, o in self.linears) + 2 * self.hidden)
        return blocks + self.vocabulary * self.hidden * (1 if self.tied else 2) + self.hidden

    def adapter_parameters(self, rank: int) -> int:
        """With an adapter on every linear layer; fewer modules take less."""
        return self.layers * sum(rank * (i + o) for i, o in self.linears)


_POSITIONS = 8192  # of SmolLM2-135M-Instruct
SMOLLM2_135M = Shape(30, 576, 1536, 9, 3, 64, 49152, tied=True)


def shape_of(hf_checkpoint: str | None) -> Shape | None:
    """None where it cannot be told without loading: a hub id, or a config of another kind of model."""
    if hf_checkpoint is None:
        return SMOLLM2_135M
    path = Path(hf_checkpoint).expanduser() / "config.json"
    if not path.is_file():
        return None
    try:
        config = cast(dict[str, Any], json.loads(path.read_text(encoding="utf-8")))
        heads = int(config["num_attention_heads"])
        return Shape(
            layers=int(config["num_hidden_layers"]),
            hidden=int(config["hidden_size"]),
            intermediate=int(config["intermediate_size"]),
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or config["hidden_size"] // heads),
            vocabulary=int(config["vocab_size"]),
            tied=bool(config.get("tie_word_embeddings", False)),
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def longest_session(hf_checkpoint: str | None) -> int | None:
    """Tokens that the model has positions for; None where it cannot be told without loading."""
    if hf_checkpoint is None:
        return _POSITIONS
    try:
        content = (Path(hf_checkpoint).expanduser() / "config.json").read_text(encoding="utf-8")
        return int(cast(dict[str, Any], json.loads(content))["max_position_embeddings"])
    except (OSError, KeyError, TypeError, ValueError, OverflowError):
        return None


def trainable_parameters(shape: Shape, options: LocalOptions) -> int:
    """Of the adapter, or of all weights with --full-finetune."""
    if options.local is not None and options.local.full_finetune:
        return shape.parameters
    return shape.adapter_parameters(options.lora.lora_rank) if options.lora is not None else 0


def memory_estimate(options: LocalOptions) -> dict[str, Any]:
    """GiB by part, or why there is none."""
    shape = shape_of(options.files.hf_checkpoint)
    if shape is None or options.local is None:
        return {"estimate": "unknown: the shape of --hf-checkpoint is known only once it is loaded"}
    trainable = trainable_parameters(shape, options)
    per_token = 2 * shape.layers * shape.kv_heads * shape.head_dim * _FLOAT32
    parts = {
        "weights_gib": shape.parameters * _FLOAT32,
        "gradients_gib": trainable * _FLOAT32,
        "optimizer_gib": trainable * 2 * _FLOAT32,
        "kv_cache_gib": per_token * options.rollout.max_seq_len * options.local.max_concurrent,
    }
    return {
        **{name: round(size / GIB, 3) for name, size in parts.items()},
        "kv_bytes_per_token": per_token,
        "formula": _FORMULA,
    }


def checkpoint_bytes(options: LocalOptions) -> int | None:
    """Bytes that all checkpoints and the final model of this run take on disk; None where the shape is unknown."""
    shape = shape_of(options.files.hf_checkpoint)
    if shape is None:
        return None
    saves = -(-options.rollout.num_rollout // options.rollout.save_interval)
    return saves * trainable_parameters(shape, options) * 3 * _FLOAT32 + shape.parameters * _FLOAT32

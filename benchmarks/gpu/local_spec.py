"""Megatron layers without Transformer Engine, for `--spec local_spec get_spec`.

Megatron's own modules, with PyTorch's attention in the middle: its local one takes neither the head sizes of
multi-head latent attention nor packed sequences. Importing this file also fills gaps: names that Megatron's code
expects from Transformer Engine, and Miles' names of parameters, which are those of Transformer Engine's layers.
"""

# pyright: reportMissingImports=false
# Miles, Megatron and SGLang are on the machine with the GPUs only.

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import megatron.core.transformer.moe.moe_utils as moe_utils
import megatron.core.transformer.multi_latent_attention as latent_attention
import miles.backends.megatron_utils.update_weight.common as weight_names
import torch
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
from megatron.core.transformer.module import MegatronModule
from miles.backends.training_utils.parallel import get_parallel_state
from torch.nn.functional import scaled_dot_product_attention

_EXPERT = re.compile(r"mlp\.experts\.local_experts\.(\d+)\.(linear_fc[12])\.weight")


class TorchAttention(MegatronModule):
    """Causal attention of [sequence, batch, heads, size], or of packed sequences as [tokens, heads, size]."""

    def __init__(self, config: Any, *_: object, softmax_scale: float | None = None, **__: object) -> None:
        super().__init__(config=config)
        self._scale = softmax_scale

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *_: object,
        packed_seq_params: Any = None,
        **__: object,
    ) -> torch.Tensor:
        if packed_seq_params is None or packed_seq_params.qkv_format != "thd":
            out = self._attend(*(part.permute(1, 2, 0, 3) for part in (query, key, value))).permute(2, 0, 1, 3)
            return out.reshape(*out.shape[:2], -1)
        if query.dim() == 4:
            query, key, value = (part.squeeze(1) for part in (query, key, value))
        ends: list[int] = packed_seq_params.cu_seqlens_q.tolist()
        parts = [
            self._attend(*(part[start:end].transpose(0, 1)[None] for part in (query, key, value)))[0].transpose(0, 1)
            for start, end in itertools.pairwise(ends)
            if end > start
        ]
        out = torch.cat(parts)
        padding = out.new_zeros(query.shape[0] - out.shape[0], *out.shape[1:])
        return torch.cat((out, padding)).flatten(1)

    def _attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return scaled_dot_product_attention(query, key, value, is_causal=True, scale=self._scale)


class Norm(torch.nn.RMSNorm):
    """RMSNorm whose gradient is summed over the ranks that share a sequence; Megatron's local one refuses to."""

    def __init__(self, config: Any, hidden_size: int, eps: float = 1e-5, **_: object) -> None:
        super().__init__(hidden_size, eps=eps)
        # Megatron asks the parameter for it.
        setattr(self.weight, "sequence_parallel", config.sequence_parallel)  # noqa: B010


def get_spec(args: Any, config: Any, vp_stage: int | None = None) -> Any:
    """What Miles' model provider asks a spec for."""
    stage = {} if vp_stage is None else {"vp_stage": vp_stage}
    spec = get_gpt_decoder_block_spec(config, use_transformer_engine=False, normalization=args.normalization, **stage)
    for layer in spec.layer_specs:
        parts, attention = layer.submodules, layer.submodules.self_attention.submodules
        parts.input_layernorm = parts.pre_mlp_layernorm = Norm
        attention.q_layernorm = attention.kv_layernorm = Norm
        attention.core_attention = TorchAttention
    spec.layer_norm = Norm
    return spec


def name_of(name: str, first_expert: int) -> str:
    """A parameter's name as layers of Transformer Engine have it; experts are counted over all ranks."""
    name = _EXPERT.sub(lambda found: f"mlp.experts.{found[2]}.weight{first_expert + int(found[1])}", name)
    name = name.replace("self_attention.q_layernorm.weight", "self_attention.linear_q_up_proj.layer_norm_weight")
    return name.replace("self_attention.kv_layernorm.weight", "self_attention.linear_kv_up_proj.layer_norm_weight")


_own_names = weight_names._named_params_and_buffers_global


def _named(args: Any, model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    experts = get_parallel_state().ep
    first = experts.rank * (args.num_experts or 0) // experts.size
    for name, parameter in _own_names(args, model):
        yield name_of(name, first), parameter


weight_names._named_params_and_buffers_global = _named
# isinstance() takes classes only, and without Transformer Engine these are none.
for _missing in ("TELinear", "TEColumnParallelLinear", "Linear"):
    if not isinstance(getattr(latent_attention, _missing), type):
        setattr(latent_attention, _missing, type(_missing, (), {}))
if not hasattr(moe_utils, "te_general_gemm"):
    moe_utils.te_general_gemm = None

"""What the recipes know of their models: sizes, what Megatron is told of them, and how many bytes they take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

BF16 = 2  # bytes
ALL_LINEAR = "all-linear"
MLP = ("gate_proj", "up_proj", "down_proj")
MODULES = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj", *MLP)


@dataclass(frozen=True)
class ModelShape:
    """A mixture-of-experts model with multi-head latent attention (MLA); sizes as in its Hugging Face config.json."""

    name: str
    model_type: str | None  # None where releases of one architecture differ in it
    dense_layers: int
    moe_layers: int
    hidden: int
    dense_ffn: int
    expert_ffn: int
    heads: int
    experts: int
    top_k: int
    shared_experts: int
    q_lora: int
    kv_lora: int
    qk_nope: int
    qk_rope: int
    v_head: int
    vocabulary: int
    rope_theta: int
    router_scale: float
    mtp_layers: int
    vocabulary_divisor: int
    kv_bytes_per_layer: int  # of one token in the rollout's KV cache
    own_arguments: tuple[str, ...]  # of this model alone

    @property
    def layers(self) -> int:
        return self.dense_layers + self.moe_layers

    @property
    def expert_parameters(self) -> int:
        """Of the routed experts, which expert parallelism spreads; the MTP layer not counted."""
        return self.moe_layers * self._experts_of_a_layer

    @property
    def shared_parameters(self) -> int:
        """Of all else, which tensor parallelism spreads."""
        moe = self.moe_layers * (self._ffn(self.expert_ffn * self.shared_experts) + self.hidden * self.experts)
        return self.layers * self._attention + self.dense_layers * self._ffn(self.dense_ffn) + moe + self._embeddings

    @property
    def parameters(self) -> int:
        return self.expert_parameters + self.shared_parameters

    @property
    def mtp_parameters(self) -> int:
        """Of the layers that predict further tokens, which the trainer holds and the totals leave out."""
        return self.mtp_layers * (self._experts_of_a_layer + self._attention + 2 * self.hidden * self.hidden)

    def adapter_parameters(self, modules: Sequence[str], rank: int) -> int:
        """Of LoRA matrices A and B outside the routed experts; modules that this architecture lacks count nothing."""
        wide = self.heads * (self.qk_nope + self.qk_rope)
        sizes = {
            "q_a_proj": self.hidden + self.q_lora,
            "q_b_proj": self.q_lora + wide,
            "kv_a_proj_with_mqa": self.hidden + self.kv_lora + self.qk_rope,
            "kv_b_proj": self.kv_lora + self.heads * (self.qk_nope + self.v_head),
            "o_proj": self.heads * self.v_head + self.hidden,
        }
        named = MODULES if ALL_LINEAR in modules else modules
        attention = self.layers * sum(sizes.get(module, 0) for module in named)
        dense = self.dense_layers * (self.hidden + self.dense_ffn)
        shared = self.moe_layers * (self.hidden + self.expert_ffn * self.shared_experts)
        return rank * (attention + (dense + shared) * sum(module in MLP for module in named))

    def expert_adapter_parameters(self, modules: Sequence[str], rank: int, *, shared_outer: bool) -> int:
        """Of adapters on the routed experts; `shared_outer`: a layer has one matrix on the hidden side for all."""
        named = MODULES if ALL_LINEAR in modules else modules
        outer = self.hidden * (1 if shared_outer else self.experts)
        inner = self.expert_ffn * self.experts
        return self.moe_layers * rank * (outer + inner) * sum(module in MLP for module in named)

    @property
    def kv_bytes_per_token(self) -> int:
        """MLA caches one latent vector and one rotary key for all heads, so tensor parallelism does not spread it."""
        return self.kv_bytes_per_layer * self.layers

    @property
    def hf_fields(self) -> dict[str, int | str]:
        """What config.json of this model says."""
        named: dict[str, int | str] = {"model_type": self.model_type} if self.model_type else {}
        return named | {
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "hidden_size": self.hidden,
            "n_routed_experts": self.experts,
            "vocab_size": self.vocabulary,
        }

    @property
    def megatron_arguments(self) -> tuple[str, ...]:
        return (
            *("--moe-layer-freq", f"[0]*{self.dense_layers}+[1]*{self.moe_layers}"),
            *("--num-experts", str(self.experts)),
            *("--moe-router-topk", str(self.top_k)),
            *("--moe-ffn-hidden-size", str(self.expert_ffn)),
            *("--moe-shared-expert-intermediate-size", str(self.expert_ffn * self.shared_experts)),
            *("--moe-router-topk-scaling-factor", str(self.router_scale)),
            "--moe-grouped-gemm",
            "--moe-permute-fusion",
            *("--moe-router-score-function", "sigmoid"),
            "--moe-router-pre-softmax",
            "--moe-router-enable-expert-bias",
            *("--moe-router-bias-update-rate", "0"),
            *("--moe-router-load-balancing-type", "seq_aux_loss"),
            *("--moe-aux-loss-coeff", "0"),
            *("--moe-router-dtype", "fp32"),
            *("--num-layers", str(self.layers)),
            *("--hidden-size", str(self.hidden)),
            *("--ffn-hidden-size", str(self.dense_ffn)),
            *("--num-attention-heads", str(self.heads)),
            "--disable-bias-linear",
            "--swiglu",
            "--untie-embeddings-and-output-weights",
            *("--position-embedding-type", "rope"),
            "--no-position-embedding",
            *("--normalization", "RMSNorm"),
            "--qk-layernorm",
            "--multi-latent-attention",
            *("--q-lora-rank", str(self.q_lora)),
            *("--kv-lora-rank", str(self.kv_lora)),
            *("--qk-head-dim", str(self.qk_nope)),
            *("--v-head-dim", str(self.v_head)),
            *("--kv-channels", str(self.qk_nope)),
            *("--qk-pos-emb-head-dim", str(self.qk_rope)),
            *("--vocab-size", str(self.vocabulary)),
            *("--make-vocab-size-divisible-by", str(self.vocabulary_divisor)),
            *("--rotary-base", str(self.rope_theta)),
            *(("--mtp-num-layers", str(self.mtp_layers)) if self.mtp_layers else ()),
            *self.own_arguments,
        )

    @property
    def _experts_of_a_layer(self) -> int:
        return self.experts * self._ffn(self.expert_ffn)

    @property
    def _attention(self) -> int:
        q = self.hidden * self.q_lora + self.q_lora * self.heads * (self.qk_nope + self.qk_rope)
        kv = self.hidden * (self.kv_lora + self.qk_rope) + self.kv_lora * self.heads * (self.qk_nope + self.v_head)
        return q + kv + self.heads * self.v_head * self.hidden

    @property
    def _embeddings(self) -> int:
        return 2 * self.vocabulary * self.hidden

    def _ffn(self, width: int) -> int:
        return 3 * self.hidden * width


GLM_4_7_FLASH = ModelShape(
    name="GLM-4.7-Flash",
    model_type="glm4_moe_lite",
    dense_layers=1,
    moe_layers=46,
    hidden=2048,
    dense_ffn=10240,
    expert_ffn=1536,
    heads=20,
    experts=64,
    top_k=4,
    shared_experts=1,
    q_lora=768,
    kv_lora=512,
    qk_nope=192,
    qk_rope=64,
    v_head=256,
    vocabulary=154880,
    rope_theta=1_000_000,
    router_scale=1.8,
    mtp_layers=1,
    vocabulary_divisor=64,
    kv_bytes_per_layer=(512 + 64) * BF16,
    own_arguments=("--norm-epsilon", "1e-5", "--add-qkv-bias", "--no-rope-fusion"),
)

# FlashMLA's fp8 cache: 512 values in fp8, 4 scales in fp32, the rotary key in bf16; the indexer's key in fp8, 1 scale.
_DSA_FP8_BYTES = 512 + 4 * 4 + 64 * BF16 + 128 + 4

GLM_5_2 = ModelShape(
    name="GLM-5.2",
    model_type=None,
    dense_layers=3,
    moe_layers=75,
    hidden=6144,
    dense_ffn=12288,
    expert_ffn=2048,
    heads=64,
    experts=256,
    top_k=8,
    shared_experts=1,
    q_lora=2048,
    kv_lora=512,
    qk_nope=192,
    qk_rope=64,
    v_head=256,
    vocabulary=154880,
    rope_theta=8_000_000,
    router_scale=2.5,
    mtp_layers=0,
    vocabulary_divisor=16,
    kv_bytes_per_layer=_DSA_FP8_BYTES,
    own_arguments=("--spec", "miles_plugins.models.glm5.glm5", "get_glm5_spec", "--enable-experimental"),
)

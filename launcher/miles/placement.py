"""What runs where, as a plan shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from launcher.miles.capabilities import grouped
from launcher.miles.parallel import EngineSizes, Layout, ParallelSizes
from launcher.options import CommonOptions

_DIGITS = 9  # of a number of GPUs
_PARALLEL = {
    "tensor_parallel": "--tensor-model-parallel-size",
    "pipeline_parallel": "--pipeline-model-parallel-size",
    "context_parallel": "--context-parallel-size",
    "expert_parallel": "--expert-model-parallel-size",
    "expert_tensor_parallel": "--expert-tensor-parallel-size",
}


def placement(layout: Layout, sizes: ParallelSizes, engines: EngineSizes, options: CommonOptions) -> dict[str, Any]:
    """`train_ranks` is how many files of each step's `train_data` make it complete; 0 where nothing is trained."""
    rollout, trains = options.rollout, options.job.mode == "normal"
    steps = rollout.rollout_batch_size * rollout.n_samples_per_prompt // rollout.global_batch_size
    return {
        "nodes": layout.nodes,
        "gpus_per_node": layout.gpus_per_node,
        "colocated": layout.colocated,
        "train_nodes": layout.train_nodes,
        "rollout_nodes": layout.rollout_nodes,
        "train_ranks": layout.train_gpus if trains else 0,
        "tensor_parallel": sizes.tensor,
        "pipeline_parallel": sizes.pipeline,
        "context_parallel": sizes.context,
        "expert_parallel": sizes.expert,
        "expert_tensor_parallel": sizes.expert_tensor,
        "data_parallel": sizes.data,
        "engines": engines.count,
        "gpus_per_engine": engines.gpus,
        "engine_attention_tensor_parallel": engines.attention_tensor,
        "engine_data_parallel_attention": engines.attention_data,
        "optimizer_steps_per_rollout": steps if trains else 0,
    }


def as_changed(planned: Mapping[str, Any], arguments: Sequence[str]) -> dict[str, Any]:
    """The placement that Miles gets, where `--argument-changes` had a say in it.

    Whoever reads the plan counts on it: a trainer's files would otherwise be waited for on ranks that there are not.
    """
    flags = dict(grouped(arguments))

    def whole(flag: str, otherwise: int) -> int:
        values = flags.get(flag, [])
        known = len(values) == 1 and values[0].isdecimal() and len(values[0]) <= _DIGITS
        return int(values[0]) or otherwise if known else otherwise

    train_nodes = whole("--actor-num-nodes", planned["train_nodes"])
    sizes = {name: whole(flag, planned[name]) for name, flag in _PARALLEL.items()}
    one_model = sizes["tensor_parallel"] * sizes["pipeline_parallel"] * sizes["context_parallel"]
    # A node of the plan may be shared, so its number of training GPUs is the actor's alone.
    ranks = train_nodes * whole("--actor-num-gpus-per-node", planned["gpus_per_node"])
    colocated, trains = "--colocate" in flags, bool(planned["train_ranks"])
    rollout_gpus = whole("--rollout-num-gpus", planned["gpus_per_engine"] * planned["engines"])
    if colocated and (trains or "--rollout-num-gpus" not in flags):
        rollout_gpus = ranks  # whatever the flag says: Miles takes the trainer's
    gpus = whole("--rollout-num-gpus-per-engine", planned["gpus_per_engine"])
    attention = whole("--sglang-dp-size", 1) if "--sglang-enable-dp-attention" in flags else 1
    return {
        **planned,
        "colocated": colocated,
        "train_nodes": train_nodes,
        "train_ranks": ranks if trains else 0,
        **sizes,
        "data_parallel": max(1, ranks // one_model),
        "engines": max(1, rollout_gpus // gpus),
        "gpus_per_engine": gpus,
        "engine_attention_tensor_parallel": max(1, gpus // attention),
        "engine_data_parallel_attention": attention,
    }

"""What runs where, as a plan shows it."""

from __future__ import annotations

from typing import Any

from launcher.miles.parallel import EngineSizes, Layout, ParallelSizes
from launcher.options import CommonOptions


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

from __future__ import annotations

import pytest

from launcher.errors import OptionsError
from launcher.miles.parallel import (
    colocated_layout,
    engine_sizes,
    largest_expert_parallel,
    largest_tensor_parallel,
    split_layout,
    training_sizes,
    validate_batch_feeds_every_rank,
)
from launcher.model_shape import GLM_4_7_FLASH, GLM_5_2
from launcher.options import Rollout


@pytest.mark.parametrize(("gpus", "expert"), [(1, 1), (2, 2), (4, 4), (8, 8), (16, 16), (24, 8), (56, 8), (64, 64)])
def test_the_largest_expert_parallel_divides_experts_and_gpus(gpus: int, expert: int) -> None:
    assert largest_expert_parallel(GLM_4_7_FLASH, gpus) == expert


@pytest.mark.parametrize(("gpus", "tensor"), [(8, 4), (4, 4), (2, 2), (1, 1), (6, 2), (5, 1)])
def test_tensor_parallel_divides_the_heads_within_a_node(gpus: int, tensor: int) -> None:
    assert largest_tensor_parallel(GLM_4_7_FLASH, gpus, at_most=4) == tensor


@pytest.mark.parametrize("nodes", [1, 2, 3, 7])
def test_sizes_multiply_to_the_training_gpus(nodes: int) -> None:
    layout = colocated_layout(nodes, 8)
    sizes = training_sizes(GLM_4_7_FLASH, layout, 4, largest_expert_parallel(GLM_4_7_FLASH, layout.train_gpus))
    assert sizes.tensor * sizes.data == layout.train_gpus
    assert sizes.expert * sizes.expert_tensor * sizes.expert_data == layout.train_gpus


def test_experts_over_a_world_that_does_not_divide_them_are_refused_with_the_node_counts_that_do() -> None:
    for nodes in (3, 6):
        with pytest.raises(OptionsError, match=r"pass --num-nodes 1, 2, 4, 8, 16, 32"):
            training_sizes(GLM_5_2, colocated_layout(nodes, 8), tensor=8, expert=8 * nodes)


def test_twenty_heads_need_attention_groups_on_eight_gpus() -> None:
    layout = split_layout(8, 1, 8)
    engines = engine_sizes(GLM_4_7_FLASH, layout, 8, "--num-gpus-per-node", attention_tensor=4)
    assert (engines.count, engines.attention_tensor, engines.attention_data) == (7, 4, 2)
    with pytest.raises(OptionsError, match="20 heads"):
        engine_sizes(GLM_4_7_FLASH, layout, 8, "--num-gpus-per-node")


def test_engines_that_do_not_divide_the_gpus_are_refused() -> None:
    with pytest.raises(OptionsError, match="must divide the 32 rollout GPUs"):
        engine_sizes(GLM_5_2, colocated_layout(4, 8), 12, "--fp8-rollout-gpus-per-engine")


def sizes_of(prompts: int, samples: int, batch: int) -> Rollout:
    return Rollout(
        max_seq_len=1, rollout_max_response_len=1, rollout_batch_size=prompts, n_samples_per_prompt=samples,
        global_batch_size=batch, num_rollout=1, save_interval=1, lr=1.0,
    )  # fmt: skip


def test_ranks_that_cannot_share_a_step_evenly_are_refused_with_the_choices() -> None:
    four = colocated_layout(4, 8)
    sizes = training_sizes(GLM_4_7_FLASH, four, 4, 32)
    validate_batch_feeds_every_rank(sizes_of(4, 8, 32), four, sizes)
    with pytest.raises(
        OptionsError, match=r"8 data-parallel ranks.*--num-nodes 1, 2, 3, 6, or .*-batch-size 8, 16, 24, 48"
    ):
        validate_batch_feeds_every_rank(sizes_of(6, 8, 12), four, sizes)
    three = colocated_layout(3, 8)
    with pytest.raises(OptionsError, match=r"6 data-parallel ranks.*pass --num-nodes 1, 2, 4, 8, 16\Z"):
        validate_batch_feeds_every_rank(sizes_of(4, 8, 32), three, training_sizes(GLM_4_7_FLASH, three, 4, 8))


def test_an_engine_spreads_the_experts_over_its_gpus() -> None:
    layout = split_layout(3, 1, 6)
    with pytest.raises(OptionsError, match=r"64 experts.*pass --num-gpus-per-node 1, 2, 4"):
        engine_sizes(GLM_4_7_FLASH, layout, 6, "--num-gpus-per-node", attention_tensor=2)

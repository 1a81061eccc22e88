"""The placement that a plan shows is that of the arguments which Miles gets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from launcher.miles.argument_changes import ArgumentChanges, Setting
from launcher.miles.placement import as_changed

ARGUMENTS = (
    *("--colocate", "--actor-num-nodes", "1", "--actor-num-gpus-per-node", "8", "--rollout-num-gpus", "8"),
    *("--tensor-model-parallel-size", "4", "--pipeline-model-parallel-size", "1", "--context-parallel-size", "1"),
    *("--expert-model-parallel-size", "8", "--expert-tensor-parallel-size", "1", "--rollout-num-gpus-per-engine", "8"),
    *("--sglang-enable-dp-attention", "--sglang-dp-size", "2"),
)
PLANNED: Mapping[str, Any] = {
    "nodes": 1,
    "gpus_per_node": 8,
    "colocated": True,
    "train_nodes": 1,
    "rollout_nodes": 1,
    "train_ranks": 8,
    "tensor_parallel": 4,
    "pipeline_parallel": 1,
    "context_parallel": 1,
    "expert_parallel": 8,
    "expert_tensor_parallel": 1,
    "data_parallel": 2,
    "engines": 1,
    "gpus_per_engine": 8,
    "engine_attention_tensor_parallel": 4,
    "engine_data_parallel_attention": 2,
    "optimizer_steps_per_rollout": 1,
}


def changed(planned: Mapping[str, Any], values: Mapping[str, str], leave_out: tuple[str, ...] = ()) -> dict[str, Any]:
    """What differs from `planned`."""
    settings = {flag: Setting((value,), "x") for flag, value in values.items()}
    arguments, _ = ArgumentChanges(dict.fromkeys(leave_out, "x"), settings).applied(ARGUMENTS)
    now = as_changed(planned, arguments)
    assert now.keys() == planned.keys()
    return {name: value for name, value in now.items() if value != planned[name]}


@pytest.mark.parametrize(
    ("values", "leave_out", "expected"),
    [
        ({"--lr": "1e-6"}, (), {}),
        # Colocated engines take the trainer's GPUs, whatever --rollout-num-gpus says.
        (
            {"--actor-num-gpus-per-node": "4", "--rollout-num-gpus-per-engine": "2", "--sglang-dp-size": "1"},
            (),
            {
                "train_ranks": 4,
                "data_parallel": 1,
                "engines": 2,
                "gpus_per_engine": 2,
                "engine_attention_tensor_parallel": 2,
                "engine_data_parallel_attention": 1,
            },
        ),
        # Apart and without a number for the rollout: the GPUs of the plan.
        (
            {"--rollout-num-gpus-per-engine": "4"},
            ("--colocate", "--rollout-num-gpus", "--sglang-enable-dp-attention"),
            {"colocated": False, "engines": 2, "gpus_per_engine": 4, "engine_data_parallel_attention": 1},
        ),
        # An engine over several nodes.
        (
            {"--actor-num-nodes": "2", "--rollout-num-gpus-per-engine": "16"},
            (),
            {
                "train_nodes": 2,
                "train_ranks": 16,
                "data_parallel": 4,
                "gpus_per_engine": 16,
                "engine_attention_tensor_parallel": 8,
            },
        ),
        # What Miles' parser refuses is its to report.
        *(({"--actor-num-nodes": value}, (), {}) for value in ("0.5", "-1", "0", "two", "", "9" * 5000)),
    ],
)
def test_placement_follows_the_arguments(
    values: Mapping[str, str], leave_out: tuple[str, ...], expected: Mapping[str, Any]
) -> None:
    assert changed(PLANNED, values, leave_out) == expected


def test_where_nothing_is_trained_no_rank_is_waited_for_and_rollout_has_its_own_gpus() -> None:
    nothing = {**PLANNED, "train_ranks": 0, "optimizer_steps_per_rollout": 0}
    assert changed(nothing, {"--rollout-num-gpus": "16"}) == {"engines": 2}
    assert changed(nothing, {"--lr": "1e-6"}, ("--rollout-num-gpus",)) == {}

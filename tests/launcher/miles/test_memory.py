"""Figures that the design gives, and what must hold whatever the sizes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from launcher.miles.memory import H200_GIB, Serving, Training, estimate, judge, rollout_gib, trainer_gib
from launcher.miles.parallel import EngineSizes, ParallelSizes
from launcher.model_shape import BF16, GLM_4_7_FLASH, GLM_5_2

SIZES = ParallelSizes(tensor=4, expert=8, data=2, expert_data=1)
TRAINING = Training(SIZES, tokens=65536, gradient_bytes=4, optimizer_offloaded=True)
SERVING = Serving(EngineSizes(8, 1, 1, 1), BF16, 0.7, in_flight=32, tokens=65536)


def test_parameters_and_cache_are_those_of_the_published_models() -> None:
    assert GLM_4_7_FLASH.parameters / 1e9 == pytest.approx(29.9, abs=0.1)
    assert BF16 * GLM_4_7_FLASH.parameters / 2**30 == pytest.approx(55.8, abs=0.05)
    assert BF16 * GLM_4_7_FLASH.expert_parameters / 2**30 == pytest.approx(51.8, abs=0.06)
    assert GLM_4_7_FLASH.kv_bytes_per_token == 54144
    assert GLM_5_2.parameters / 1e9 == pytest.approx(744, abs=1)


@pytest.mark.parametrize(("expert", "gib"), [(8, 6.5), (2, 25.9)])
def test_expert_weights_of_a_gpu_shrink_with_expert_parallel(expert: int, gib: float) -> None:
    sizes = replace(SIZES, expert=expert)
    assert trainer_gib(GLM_4_7_FLASH, replace(TRAINING, sizes=sizes))["expert_weights"] == gib


def test_the_total_is_the_sum_of_its_parts() -> None:
    parts = trainer_gib(GLM_4_7_FLASH, replace(TRAINING, optimizer_offloaded=False))
    assert parts["optimizer"] > 0
    assert sum(value for name, value in parts.items() if name != "total") == pytest.approx(parts["total"], abs=0.3)


def test_the_cache_is_that_of_the_sessions_of_one_engine() -> None:
    parts = rollout_gib(GLM_4_7_FLASH, SERVING, H200_GIB)
    assert parts["sessions"] == 4
    assert parts["kv_cache"] == pytest.approx(4 * 65536 * 54144 / 2**30, abs=0.05)
    grouped = replace(SERVING, sizes=EngineSizes(7, 8, 4, 2), in_flight=128)
    assert rollout_gib(GLM_4_7_FLASH, grouped, H200_GIB)["sessions"] == 10


def test_dense_attention_takes_what_grows_with_the_square_of_the_length() -> None:
    training = Training(
        ParallelSizes(8, 32, 4, 1), 4096, 4, True, recompute=False, adapter_parameters=1, dense_scores=True
    )
    sparse = replace(training, dense_scores=False)
    scores = trainer_gib(GLM_5_2, training)["activations"] - trainer_gib(GLM_5_2, sparse)["activations"]
    assert scores == pytest.approx(59, abs=1)
    longer = replace(training, tokens=8192)
    assert not judge(trainer_gib(GLM_5_2, longer), rollout_gib(GLM_5_2, SERVING, H200_GIB), H200_GIB).fits


def test_the_documented_plan_fits_and_one_gpu_does_not() -> None:
    assert estimate(GLM_4_7_FLASH, TRAINING, SERVING, H200_GIB, {})["fits"]
    alone = replace(TRAINING, sizes=ParallelSizes(1, 1, 1, 1))
    memory = estimate(GLM_4_7_FLASH, alone, SERVING, H200_GIB, {})
    assert not memory["fits"]
    assert "a GPU has 133 usable" in memory["verdict"]


def test_an_engine_without_room_for_one_session_does_not_fit_and_one_short_of_some_does() -> None:
    short = replace(SERVING, static_fraction=0.41)
    verdict = judge(None, rollout_gib(GLM_4_7_FLASH, short, H200_GIB), H200_GIB)
    assert not verdict.fits
    crowded = replace(SERVING, in_flight=256)
    verdict = judge(None, rollout_gib(GLM_4_7_FLASH, crowded, H200_GIB), H200_GIB)
    assert verdict.fits and "retracted" in verdict.sentence


def test_only_the_adapter_is_trained_where_there_is_one() -> None:
    adapter = GLM_5_2.adapter_parameters(("o_proj", "kv_b_proj", "q_proj"), rank=16)
    assert adapter == 78 * 16 * ((64 * 256 + 6144) + (512 + 64 * 448))
    whole = trainer_gib(GLM_5_2, replace(TRAINING, sizes=ParallelSizes(8, 32, 4, 1)))
    part = trainer_gib(GLM_5_2, replace(TRAINING, sizes=ParallelSizes(8, 32, 4, 1), adapter_parameters=adapter))
    assert part["gradients"] < 1 < whole["gradients"]
    assert part["expert_weights"] == whole["expert_weights"]


@pytest.mark.parametrize("modules", [("all-linear",), ("gate_proj", "up_proj", "down_proj")])
def test_adapters_on_experts_count(modules: tuple[str, ...]) -> None:
    every = GLM_5_2.expert_adapter_parameters(modules, 16, shared_outer=False)
    assert every == 75 * 3 * 16 * (6144 + 2048) * 256
    assert GLM_5_2.expert_adapter_parameters(modules, 16, shared_outer=True) == 75 * 3 * 16 * (6144 + 2048 * 256)
    assert GLM_5_2.adapter_parameters(modules, 16) > 0
    sizes = ParallelSizes(8, 32, 4, 1)
    part = trainer_gib(GLM_5_2, replace(TRAINING, sizes=sizes, adapter_parameters=0, expert_adapter_parameters=every))
    assert part["adapter"] == pytest.approx(2 * every / 32 / 2**30, abs=0.06)
    assert GLM_5_2.expert_adapter_parameters(("o_proj",), 16, shared_outer=False) == 0

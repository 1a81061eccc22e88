"""--model-shape: other sizes of the recipe's architecture, and what no model can be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from launcher.errors import OptionsError
from launcher.model_shape import GLM_4_7_FLASH
from launcher.model_shape_file import shape_from
from launcher.scripts import ROOT

TINY = {"name": "tiny", "heads": 4, "experts": 8, "top_k": 2, "mtp_layers": 0}


def written(tmp_path: Path, content: Any) -> str:
    path = tmp_path / "shape.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def test_without_a_file_the_recipe_keeps_its_model() -> None:
    assert shape_from(None, GLM_4_7_FLASH) is GLM_4_7_FLASH


def test_what_the_file_leaves_out_stays_as_in_the_recipe(tmp_path: Path) -> None:
    shape = shape_from(written(tmp_path, TINY), GLM_4_7_FLASH)
    assert (shape.name, shape.heads, shape.experts, shape.hidden) == ("tiny", 4, 8, GLM_4_7_FLASH.hidden)
    assert "--mtp-num-layers" not in shape.megatron_arguments
    assert shape.hf_fields["n_routed_experts"] == 8


def test_the_model_of_the_gpu_run_fits_tensor_parallel_4_and_expert_parallel_8() -> None:
    shape = shape_from(str(ROOT / "benchmarks" / "gpu" / "model_shape.json"), GLM_4_7_FLASH)
    assert shape.heads % 4 == 0 and shape.experts % 8 == 0 and shape.model_type == "glm4_moe_lite"


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("[]", "JSON object"),
        ("{", "JSON object"),
        ({}, "a name of its own"),
        ({"name": "GLM-4.7-Flash"}, "a name of its own"),
        ({**TINY, "layers": 3}, "layers is no size"),
        ({**TINY, "heads": "4"}, "heads must be a whole number of at least 1"),
        ({**TINY, "heads": True}, "heads must be"),
        ({**TINY, "heads": 0}, "heads must be"),
        ({**TINY, "mtp_layers": -1}, "mtp_layers must be a whole number of at least 0"),
        ({**TINY, "router_scale": 0}, "router_scale must be a number above 0"),
        ({**TINY, "model_type": 3}, "model_type must be a string"),
        ({**TINY, "own_arguments": "--norm-epsilon 1e-5"}, "own_arguments must be a list"),
        ({**TINY, "own_arguments": ["http://u:p@h/"]}, "user or password"),
        ({**TINY, "own_arguments": ["a value"]}, "must begin with a flag"),
        ({**TINY, "own_arguments": ["--spec", "a\0b"]}, "own_arguments must be a list of strings"),
        ({**TINY, "own_arguments": ["--a", "--wandb-key canary"]}, "a value stands apart from '--wandb-key...'"),
        ({**TINY, "wandb_key canary": 1}, "wandb_key... is no size of a model"),
        ({**TINY, "own_arguments": ["--wandb-key", "canary"]}, "--wandb-key takes a secret"),
        ({**TINY, "own_arguments": ["--load", "/x"]}, "--load follows from --resume"),
        ({**TINY, "own_arguments": ["--load=/x"]}, "--load follows from --resume"),
        ({**TINY, "hidden": 10**300}, "hidden must be a whole number of at least 1, at most"),
        ({**TINY, "router_scale": 1e300}, "router_scale must be a number above 0, at most"),
        ({**TINY, "top_k": 9}, "top_k 9 of 8 experts"),
        ({**TINY, "vocabulary": 2050}, "no multiple of vocabulary_divisor 64"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_name(tmp_path: Path, content: Any, named: str) -> None:
    with pytest.raises(OptionsError, match=named):
        shape_from(written(tmp_path, content), GLM_4_7_FLASH)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match="is not there"):
        shape_from(str(tmp_path / "shape.json"), GLM_4_7_FLASH)

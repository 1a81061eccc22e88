from __future__ import annotations

import json
from pathlib import Path

import pytest

from launcher.checks.checkpoints import check_checkpoint
from launcher.preflight import Finding, Status

FLASH = {"num_hidden_layers": 47, "num_attention_heads": 20, "hidden_size": 2048}


def check(folder: Path) -> Finding:
    return check_checkpoint("--hf-checkpoint", str(folder), FLASH, "GLM-4.7-Flash")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A complete checkpoint of two shards, without the weights in them."""
    (tmp_path / "config.json").write_text(json.dumps({**FLASH, "rope_theta": 1e6}))
    shards = ["model-1.safetensors", "model-2.safetensors"]
    for shard in shards:
        (tmp_path / shard).write_bytes(b"x")
    index = {"weight_map": {"a": shards[0], "b": shards[1], "c": shards[1]}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    return tmp_path


def test_a_checkpoint_of_the_recipes_shape_passes(folder: Path) -> None:
    finding = check(folder)
    assert finding.status is Status.OK
    assert "2 weight files" in finding.sentence


def test_a_checkpoint_of_another_model_fails_with_both_shapes(folder: Path) -> None:
    other = {**FLASH, "num_hidden_layers": 62, "num_attention_heads": 96}
    (folder / "config.json").write_text(json.dumps(other))
    finding = check(folder)
    assert finding.status is Status.FAILURE
    assert (
        "config.json says num_hidden_layers 62, num_attention_heads 96; GLM-4.7-Flash has 47 and 20" in finding.sentence
    )


def test_a_field_that_is_not_there_fails(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"num_hidden_layers": 47, "hidden_size": 2048}))
    finding = check(folder)
    assert finding.status is Status.FAILURE
    assert "num_attention_heads nothing; GLM-4.7-Flash has 20" in finding.sentence


@pytest.mark.parametrize("config", [None, "{", "[]", b"\xff\xfe", "[" * 100_000, '{"a":' * 100_000])
def test_a_config_that_cannot_be_read_fails(folder: Path, config: str | bytes | None) -> None:
    path = folder / "config.json"
    path.unlink() if config is None else path.write_bytes(config.encode() if isinstance(config, str) else config)
    assert check(folder).status is Status.FAILURE
    assert "cannot be read" in check(folder).sentence


def test_a_shard_that_is_missing_fails_by_name(folder: Path) -> None:
    (folder / "model-2.safetensors").unlink()
    finding = check(folder)
    assert finding.status is Status.FAILURE
    assert "1 of 2 shards: model-2.safetensors" in finding.sentence


def test_an_empty_shard_is_none(folder: Path) -> None:
    (folder / "model-2.safetensors").write_bytes(b"")
    assert "1 of 2 shards: model-2.safetensors" in check(folder).sentence


def test_an_index_that_is_none_fails(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text('{"weight_map": []}')
    assert check(folder).status is Status.FAILURE


def test_a_folder_without_weights_fails(folder: Path) -> None:
    for path in folder.glob("model*"):
        path.unlink()
    finding = check(folder)
    assert finding.status is Status.FAILURE
    assert "no *.safetensors" in finding.sentence


def test_a_folder_that_does_not_exist_fails_and_a_hub_id_is_fetched_later(tmp_path: Path) -> None:
    assert check(tmp_path / "none").status is Status.FAILURE
    finding = check_checkpoint("--hf-checkpoint", "zai-org/GLM-4.7-Flash", FLASH)
    assert finding.status is Status.OK
    assert "fetch" in finding.sentence

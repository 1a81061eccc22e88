"""Conversion of a Hugging Face checkpoint to Megatron's torch_dist, by Miles' own tool."""

from __future__ import annotations

import json
from pathlib import Path

from launcher.miles.recipe import Conversion
from launcher.model_shape import ModelShape
from launcher.options import CommonOptions, miles_install

_TOOL = Path("tools", "convert_hf_to_torch_dist.py")
_MASTER_PORT = 23456


def conversion_command(conversion: Conversion, shape: ModelShape, options: CommonOptions) -> tuple[str, ...]:
    """The entry point of its Ray job: torchrun on every node, unless the reference is complete."""
    gpus = str(options.machines.num_gpus_per_node)
    return (
        *("python3", "-m", "launcher.miles.convert_on_nodes"),
        *("--folder", conversion.folder, "--hf-checkpoint", conversion.hf_checkpoint),
        *("--model", shape.name, "--fields", json.dumps(shape.hf_fields), "--"),
        *("--nodes", str(conversion.nodes), "--gpus", gpus, "--"),
        *("python3", "-m", "torch.distributed.run", "--nproc-per-node", gpus, "--nnodes", "{nnodes}"),
        *("--node-rank", "{node_rank}", "--master-addr", "{master_addr}", "--master-port", str(_MASTER_PORT)),
        str(Path(str(miles_install(options).miles_path)) / _TOOL),
        *shape.megatron_arguments,
        *("--hf-checkpoint", conversion.hf_checkpoint, "--save", conversion.folder),
    )

"""Trains GLM-4.7-Flash with synchronous GRPO on one node of 8 GPUs, or rehearses it on this machine.

    python run.py --engine local                  a small model on the CPU, real tasks, real trials, minutes
    python run.py --dry-run                       print what would run, here or on a laptop
    python run.py --preflight-only                check machines, files and services, start nothing

Trainer and rollout engines take turns on the same GPUs. The documented shape, 4 prompts x 8 samples of up to 65,536
tokens, takes about 10 minutes a step on 8 H200.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import launcher.interrupted  # noqa: F401  # pyright: ignore[reportUnusedImport]
from launcher.engines import LOCAL, EngineRules, miles_rules
from launcher.main import Launcher
from launcher.miles import arguments as args
from launcher.miles import memory
from launcher.miles.parallel import (
    colocated_layout,
    engine_sizes,
    largest_expert_parallel,
    largest_tensor_parallel,
    training_sizes,
    validate_batch_feeds_every_rank,
)
from launcher.miles.placement import placement
from launcher.miles.recipe import Conversion, Recipe, Run
from launcher.model_shape import BF16, GLM_4_7_FLASH
from launcher.model_shape_file import shape_from
from launcher.options import LocalOptions, miles_install
from launcher.save_folder import tracked_start

PROGRAM = "run.py"
TOKENS_PER_GPU = 16384  # of a micro-batch, packed from several trajectories
GPUS_PER_ENGINE = 1  # the model fits on one, and eight small engines need no collectives
STATIC_FRACTION = 0.7  # of a GPU for SGLang; the trainer wakes up beside what stays


@dataclass(frozen=True)
class FlashFiles:
    """GLM-4.7-Flash."""

    base_dir: Annotated[str | None, "folder of the converted reference, where --ref-load is not given"]
    model_name: Annotated[str | None, "model: names --hf-checkpoint and --ref-load where they are not given"]
    ref_load: Annotated[str | None, "reference checkpoint in torch_dist form"]
    skip_prepare: Annotated[bool, "do not convert the checkpoint"]


@dataclass(frozen=True)
class Options(LocalOptions):
    """The options of this launcher."""

    flash: FlashFiles | None


MILES = miles_rules(
    {
        "num_nodes": 1,
        "base_dir": "/root",
        "model_name": "GLM-4.7-Flash",
        "skip_prepare": False,
        "save_dir": "/root/GLM-4.7-Flash_agent_v2",
        "save_traces_dir": None,
        "prompt_data": "/root/swe_train.jsonl",
        "max_seq_len": 65536,
        "num_rollout": 3000,
        "save_interval": 100,
        "rollout_batch_size": 4,
        "n_samples_per_prompt": 8,
        "global_batch_size": 32,
        "lr": 1e-6,
        "agent_server_url": "http://agent_env:11000",
        "wandb_run_name": "glm47-flash-swe-tito",
    },
    derived={
        "hf_checkpoint": lambda values: f"zai-org/{values['model_name']}",
        "ref_load": lambda values: str(Path(str(values["base_dir"]), f"{values['model_name']}_torch_dist")),
    },
)

ENGINES: Mapping[str, EngineRules] = {"miles": MILES, "local": LOCAL}


def recipe(options: Options, run: Run) -> Recipe:
    rollout, miles, flash = options.rollout, miles_install(options), options.flash
    assert flash is not None, "a group of --engine miles"
    files, traces = options.files, args.traces(options.files)
    shape = shape_from(miles.model_shape, GLM_4_7_FLASH)

    layout = colocated_layout(options.machines.num_nodes, int(options.machines.num_gpus_per_node or 0))
    tensor = largest_tensor_parallel(shape, layout.gpus_per_node, at_most=4)
    sizes = training_sizes(shape, layout, tensor, largest_expert_parallel(shape, layout.train_gpus))
    validate_batch_feeds_every_rank(rollout, layout, sizes)
    engines = engine_sizes(shape, layout, GPUS_PER_ENGINE, "--num-gpus-per-node")
    trials = rollout.rollout_batch_size * rollout.n_samples_per_prompt

    return Recipe(
        shape=shape,
        layout=layout,
        placement=placement(layout, sizes, engines, options),
        script="train.py",
        arguments=[
            *shape.megatron_arguments,
            *args.checkpoints(str(files.hf_checkpoint), flash.ref_load, files, run.start, rollout.save_interval),
            *args.rollout(files, rollout),
            *args.optimizer(rollout.lr),
            *args.grpo(kl=0.01),
            *(args.wandb(options.tracking) if run.wandb else ()),
            *args.prometheus(options.tracking),
            *args.dumps(traces),
            *args.parallel(sizes),
            *args.FULL_RECOMPUTE,
            *("--use-dynamic-batch-size", "--max-tokens-per-gpu", str(TOKENS_PER_GPU)),
            *args.OFFLOADED_OPTIMIZER,
            "--use-precision-aware-optimizer",
            *args.engines(engines, STATIC_FRACTION, miles),
            *args.agent(miles, options.machines.session_server_external_host, synchronous=True),
            *args.PRECISION,
            "--accumulate-allreduce-grads-in-fp32",
            *args.placement(layout),
            *args.mode(options.job),
        ],
        training=memory.Training(
            sizes, tokens=max(TOKENS_PER_GPU, rollout.max_seq_len), gradient_bytes=4, optimizer_offloaded=True
        ),
        serving=memory.Serving(engines, BF16, STATIC_FRACTION, in_flight=trials, tokens=rollout.max_seq_len),
        hf_checkpoint=str(files.hf_checkpoint),
        checkpoints={"--hf-checkpoint": str(files.hf_checkpoint)},
        traces=traces,
        # A dropped group makes Miles sample another batch beside those still running.
        most_in_flight=(2 * rollout.rollout_batch_size - 1) * rollout.n_samples_per_prompt,
        checkpoint_bytes=memory.checkpoint_bytes(shape, None),
        memory={"host_gib_per_node": {"optimizer": memory.host_optimizer_gib(shape, layout.train_nodes)}},
        conversion=Conversion(str(files.hf_checkpoint), str(flash.ref_load), layout.train_nodes, flash.skip_prepare),
    )


LAUNCHER = Launcher(PROGRAM, __doc__ or "", Options, ENGINES, recipe, tracked_start)
main = LAUNCHER.main

if __name__ == "__main__":
    sys.exit(main())

"""Trains GLM-4.7-Flash with fully asynchronous GRPO: some nodes train while the others sample all the time.

    python run-glm47-flash-agentic-async.py --engine local                 rehearsal: a small model on the CPU, minutes
    python run-glm47-flash-agentic-async.py --num-nodes 8                  one node trains, seven sample
    python run-glm47-flash-agentic-async.py --num-nodes 4 --train-num-nodes 2
    python run-glm47-flash-agentic-async.py --dry-run                      print what would run

Needs a Ray cluster over all nodes (--ray-address). Trajectories are older than the weights they train by as much as
training takes; the plan says how many optimizer steps a rollout makes.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import launcher.interrupted  # noqa: F401  # pyright: ignore[reportUnusedImport]
from launcher.engines import LOCAL, EngineRules, miles_rules
from launcher.errors import OptionsError
from launcher.main import Launcher
from launcher.miles import arguments as args
from launcher.miles import memory
from launcher.miles.parallel import (
    engine_sizes,
    largest_expert_parallel,
    largest_tensor_parallel,
    split_layout,
    training_sizes,
    validate_batch_feeds_every_rank,
)
from launcher.miles.placement import placement
from launcher.miles.recipe import Conversion, Recipe, Run
from launcher.model_shape import BF16, GLM_4_7_FLASH
from launcher.model_shape_file import shape_from
from launcher.options import Asynchrony, AsyncOptions, miles_install
from launcher.save_folder import tracked_start

PROGRAM = "run-glm47-flash-agentic-async.py"
STATIC_FRACTION = 0.8  # of a GPU for SGLang, which shares it with nobody
DECODE_BATCH = 256  # sequences that one attention group decodes at once
WEIGHT_BUFFER = 2 * 2**30  # bytes of weights sent to the engines at a time


@dataclass(frozen=True)
class AsyncFlash:
    """Split and asynchrony."""

    train_num_nodes: Annotated[int, "nodes that train; the others sample"]
    model_name: Annotated[str, "model: names --hf-checkpoint and --ref-load where they are not given"]
    ref_load: Annotated[str, "reference checkpoint in torch_dist form"]
    skip_prepare: Annotated[bool, "do not convert the checkpoint"]
    rollout_fp8: Annotated[bool, "serve <hf-checkpoint>-FP8; training stays in bf16"]
    over_sampling_batch_size: Annotated[int, "prompts taken from the data at a time"]
    update_weight_transfer_mode: Annotated[Literal["broadcast", "p2p"], "how weights reach the engines"]
    rollout_health_check_first_wait: Annotated[int, "seconds before an engine's first health check"]
    max_tokens_per_gpu: Annotated[int, "tokens of a micro-batch"]
    optimizer_cpu_offload: Annotated[bool, "keep the optimizer in host memory"]
    use_precision_aware_optimizer: Annotated[bool, "optimizer state in the precision that each part needs"]
    accumulate_allreduce_grads_in_fp32: Annotated[bool, "accumulate gradients in fp32 instead of bf16"]
    disable_wandb_random_suffix: Annotated[bool, "W&B group exactly as named"]


@dataclass(frozen=True)
class Options(AsyncOptions):
    """The options of this launcher."""

    flash: AsyncFlash | None


MILES = miles_rules(
    {
        "num_nodes": 8,
        "train_num_nodes": 1,
        "model_name": "GLM-4.7-Flash",
        "skip_prepare": False,
        "rollout_fp8": False,
        "save_dir": "/root/GLM-4.7-Flash_agentic_async",
        "save_traces_dir": None,
        "prompt_data": "/root/swe_train.jsonl",
        "max_seq_len": 16384,
        "num_rollout": 3000,
        "save_interval": 5,
        "rollout_batch_size": 32,
        "n_samples_per_prompt": 4,
        "global_batch_size": 32,
        "over_sampling_batch_size": 64,
        "lr": 1e-6,
        "max_weight_staleness": None,
        "pause_generation_mode": "in_place",
        "use_tis": False,
        "tis_clip": 2.0,
        "tis_clip_low": 0.0,
        "update_weight_transfer_mode": "broadcast",
        "rollout_health_check_first_wait": 1800,
        "max_tokens_per_gpu": 8192,
        "optimizer_cpu_offload": True,
        "use_precision_aware_optimizer": True,
        "accumulate_allreduce_grads_in_fp32": False,
        "disable_wandb_random_suffix": True,
        "agent_server_url": "http://localhost:8080",
        "wandb_run_name": "glm47-flash-swe-async",
    },
    shown={"save_traces_dir": "<save-dir>/traces; disabled: none"},
    derived={
        "hf_checkpoint": lambda values: f"/models/zai-org/{values['model_name']}",
        "ref_load": lambda values: f"/models/zai-org/{values['model_name']}_torch_dist",
    },
)

_CLUSTER = "the local engine is one process on this machine; leave it out"
REHEARSED = replace(
    LOCAL,
    defaults={
        **LOCAL.defaults,
        "max_weight_staleness": 1,
        "pause_generation_mode": "retract",
        "use_tis": True,
        "tis_clip": 2.0,
        "tis_clip_low": 0.0,
    },
    refused={
        **LOCAL.refused,
        "train_num_nodes": _CLUSTER,
        "rollout_fp8": "the local engine samples in the type of --dtype; leave it out",
        "over_sampling_batch_size": "the local engine takes one prompt at a time; leave it out",
        "update_weight_transfer_mode": _CLUSTER,
        "rollout_health_check_first_wait": _CLUSTER,
        "max_tokens_per_gpu": "the local engine bounds a pass itself; leave it out",
        "optimizer_cpu_offload": _CLUSTER,
        "use_precision_aware_optimizer": "the local engine trains with PyTorch in float32; leave it out",
        "accumulate_allreduce_grads_in_fp32": "the local engine trains with PyTorch in float32; leave it out",
        "disable_wandb_random_suffix": "the local engine adds no suffix; leave it out",
    },
)

ENGINES: Mapping[str, EngineRules] = {"miles": MILES, "local": REHEARSED}

LACKS: Mapping[str, str] = {
    "base_dir": "the reference goes to --ref-load",
    "fp8_rollout_checkpoint": "--rollout-fp8 serves <hf-checkpoint>-FP8",
}


def validate_weights_can_change_in_place(flash: AsyncFlash, asynchrony: Asynchrony) -> None:
    if asynchrony.pause_generation_mode == "in_place" and flash.update_weight_transfer_mode == "p2p":
        raise OptionsError(
            "--pause-generation-mode in_place with --update-weight-transfer-mode p2p: peer-to-peer transfer collides "
            "with engines that go on generating; pass --update-weight-transfer-mode broadcast, or "
            "--pause-generation-mode retract"
        )


def validate_numbers(flash: AsyncFlash, batch: int) -> None:
    if flash.over_sampling_batch_size < batch:
        raise OptionsError(
            f"--over-sampling-batch-size {flash.over_sampling_batch_size} is below --rollout-batch-size {batch}; "
            f"pass at least {batch}"
        )
    if flash.optimizer_cpu_offload and not flash.use_precision_aware_optimizer:
        raise OptionsError(
            "--no-use-precision-aware-optimizer with --optimizer-cpu-offload: Megatron offloads only the "
            "precision-aware one; leave it out, or add --no-optimizer-cpu-offload"
        )
    if flash.max_tokens_per_gpu < 1 or flash.rollout_health_check_first_wait < 0:
        raise OptionsError(
            f"--max-tokens-per-gpu {flash.max_tokens_per_gpu} must be positive and --rollout-health-check-first-wait "
            f"{flash.rollout_health_check_first_wait} not negative; documented: 8192 and 1800"
        )


def recipe(options: Options, run: Run) -> Recipe:
    rollout, miles, flash, files = options.rollout, miles_install(options), options.flash, options.files
    assert flash is not None, "a group of --engine miles"
    shape = shape_from(miles.model_shape, GLM_4_7_FLASH)
    validate_weights_can_change_in_place(flash, options.asynchrony)
    validate_numbers(flash, rollout.rollout_batch_size)
    traces = args.traces(files, default=str(Path(str(files.save_dir), "traces")))

    layout = split_layout(
        options.machines.num_nodes, flash.train_num_nodes, int(options.machines.num_gpus_per_node or 0)
    )
    tensor = largest_tensor_parallel(shape, layout.gpus_per_node, at_most=4)
    sizes = training_sizes(shape, layout, tensor, largest_expert_parallel(shape, layout.train_gpus))
    validate_batch_feeds_every_rank(rollout, layout, sizes, "--train-num-nodes")
    # An engine spans its node for the experts; 20 heads cannot be spread over 8 GPUs, so attention runs in groups.
    engines = engine_sizes(shape, layout, layout.gpus_per_node, "--num-gpus-per-node", attention_tensor=tensor)
    trials = rollout.rollout_batch_size * rollout.n_samples_per_prompt
    served = f"{files.hf_checkpoint}-FP8" if flash.rollout_fp8 else str(files.hf_checkpoint)

    return Recipe(
        shape=shape,
        layout=layout,
        placement=placement(layout, sizes, engines, options),
        script="train_async.py",
        arguments=[
            *shape.megatron_arguments,
            "--fully-async",
            *args.checkpoints(served, flash.ref_load, files, run.start, rollout.save_interval),
            *args.rollout(files, rollout),
            *("--over-sampling-batch-size", str(flash.over_sampling_batch_size)),
            *args.asynchrony(options.asynchrony),
            *args.optimizer(rollout.lr),
            *args.grpo(kl=0.01),
            *(args.wandb(options.tracking, random_suffix=not flash.disable_wandb_random_suffix) if run.wandb else ()),
            *args.prometheus(options.tracking),
            *args.dumps(traces),
            *args.parallel(sizes),
            *args.FULL_RECOMPUTE,
            *("--use-dynamic-batch-size", "--max-tokens-per-gpu", str(flash.max_tokens_per_gpu)),
            *(args.OFFLOADED_OPTIMIZER if flash.optimizer_cpu_offload else ()),
            *(("--use-precision-aware-optimizer",) if flash.use_precision_aware_optimizer else ()),
            *args.engines(engines, STATIC_FRACTION, miles),
            *args.wide_engine(engines, DECODE_BATCH),
            *args.agent(miles, options.machines.session_server_external_host, synchronous=False),
            *args.PRECISION,
            *("--update-weight-transfer-mode", flash.update_weight_transfer_mode),
            *("--update-weight-buffer-size", str(WEIGHT_BUFFER)),
            *(
                ("--sglang-remote-instance-weight-loader-start-seed-via-transfer-engine",)
                if flash.update_weight_transfer_mode == "p2p"
                else ()
            ),
            "--grad-reduce-in-bf16",
            *(("--accumulate-allreduce-grads-in-fp32",) if flash.accumulate_allreduce_grads_in_fp32 else ()),
            "--use-fault-tolerance",
            *("--rollout-health-check-first-wait", str(flash.rollout_health_check_first_wait)),
            *args.placement(layout),
            *args.mode(options.job),
        ],
        training=memory.Training(
            sizes,
            tokens=max(flash.max_tokens_per_gpu, rollout.max_seq_len),
            gradient_bytes=4 if flash.accumulate_allreduce_grads_in_fp32 else 2,
            optimizer_offloaded=flash.optimizer_cpu_offload,
        ),
        serving=memory.Serving(
            engines, 1 if flash.rollout_fp8 else BF16, STATIC_FRACTION, in_flight=trials, tokens=rollout.max_seq_len
        ),
        hf_checkpoint=served,
        checkpoints={
            "--hf-checkpoint": str(files.hf_checkpoint),
            **({"--rollout-fp8": served} if flash.rollout_fp8 else {}),
        },
        traces=traces,
        most_in_flight=trials,
        checkpoint_bytes=memory.checkpoint_bytes(shape, None),
        environment={"SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK": "true"},
        memory=(
            {"host_gib_per_node": {"optimizer": memory.host_optimizer_gib(shape, layout.train_nodes)}}
            if flash.optimizer_cpu_offload
            else {}
        ),
        conversion=Conversion(str(files.hf_checkpoint), flash.ref_load, layout.train_nodes, flash.skip_prepare),
        notes=[
            f"Training: {layout.train_gpus} GPUs. Rollout: {layout.rollout_gpus} GPUs, engines of {engines.gpus}; it "
            "goes on while training runs, so samples come from older weights."
        ],
    )


LAUNCHER = Launcher(PROGRAM, __doc__ or "", Options, ENGINES, recipe, tracked_start, lacks=LACKS)
main = LAUNCHER.main

if __name__ == "__main__":
    sys.exit(main())

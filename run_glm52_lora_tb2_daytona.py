"""Trains LoRA adapters of GLM-5.2 (744B-A40B) on Terminal-Bench tasks in Daytona sandboxes, over several nodes.

    python run_glm52_lora_tb2_daytona.py --engine local                      rehearsal: an adapter of a small model
    python run_glm52_lora_tb2_daytona.py --ray-address http://HEAD:8265      4 nodes of 8 GPUs
    python run_glm52_lora_tb2_daytona.py --dry-run                           print what would run

The bf16 base takes 1.4 TiB, more than one node of 8 H200 has, so the trainer is spread over all nodes; the engines
serve the fp8 checkpoint. The reference of GRPO is the base with its adapter off, so none is loaded and the KL is 0.
Start the agent server with `--environment daytona`, and the sandboxes' lifetimes that the plan names.
"""

from __future__ import annotations

import json
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
from launcher.miles.adapter_start import find_adapter_start
from launcher.miles.parallel import (
    EngineSizes,
    colocated_layout,
    engine_sizes,
    training_sizes,
    validate_batch_feeds_every_rank,
)
from launcher.miles.placement import placement
from launcher.miles.recipe import Offload, Recipe, Run, SandboxLifetime
from launcher.model_shape import GLM_5_2
from launcher.model_shape_file import shape_from
from launcher.options import LocalOptions, Lora, miles_install
from launcher.save_folder import StartPoint

PROGRAM = "run_glm52_lora_tb2_daytona.py"
DENSE_DSA_TOKENS = 4096  # where the scores of all token pairs still fit beside the base
CHUNK_MB = 256  # of the trainer on its way to disk, in host memory at a time
RUNNING = 64  # requests of an engine, all within a captured CUDA graph
AUTO_STOP_SLACK = 30  # minutes beyond a trial
AUTO_DELETE = 24 * 60  # minutes
# Attention only: the experts stay frozen, and the DSA indexer would get no gradient.
TARGETS = (
    *("q_proj", "k_proj", "v_proj", "o_proj"),
    *("q_a_proj", "kv_a_proj_with_mqa", "q_b_proj", "kv_b_proj"),
)


@dataclass(frozen=True)
class Glm52:
    """GLM-5.2."""

    fp8_rollout_checkpoint: Annotated[str, "checkpoint that the engines serve"]
    sglang_context_length: Annotated[int, "tokens that an engine accepts, apart from --max-seq-len"]
    lora_base_cpu_backup: Annotated[bool, "keep the engines' base weights in host memory (on-policy needs it)"]
    experts_shared_outer_loras: Annotated[bool, "adapter layout of experts; without meaning unless they are targets"]
    dsa_attention_backend: Annotated[
        Literal["megatron", "tilelang"], "sparse attention of the trainer; megatron is dense: up to 4,096 tokens"
    ]
    use_r3: Annotated[bool, "replay the rollout's expert routing in training (arXiv 2510.11370)"]
    fp8_rollout_gpus_per_engine: Annotated[int, "GPUs of an engine"]
    sglang_mem_fraction_static: Annotated[float, "share of a GPU that SGLang reserves"]
    sglang_lora_backend: Annotated[str, "LoRA kernels of SGLang"]
    offload_train_disk_dir: Annotated[str, "folder on each node's own disk, where the trainer waits; not a tmpfs"]


@dataclass(frozen=True)
class Options(LocalOptions):
    """The options of this launcher."""

    glm52: Glm52 | None


MILES = miles_rules(
    {
        "num_nodes": 4,
        "session_server_port": 30001,
        "sglang_router_port": 31001,
        "prometheus_port": 9091,
        "hf_checkpoint": "/models/zai-org/GLM-5.2",
        "fp8_rollout_checkpoint": "/models/zai-org/GLM-5.2-FP8",
        "save_dir": "/root/GLM-5.2_lora_tb2",
        "save_traces_dir": None,
        "prompt_data": "/root/tb2_train.jsonl",
        "max_seq_len": 65536,
        "sglang_context_length": 65536,
        "num_rollout": 200,
        "save_interval": 10,
        "rollout_batch_size": 4,
        "n_samples_per_prompt": 8,
        "global_batch_size": 32,
        "lr": 3e-5,
        "lora_rank": 16,
        "lora_alpha": 32,
        "lora_dropout": 0.0,
        "target_modules": TARGETS,
        "lora_base_cpu_backup": True,
        "experts_shared_outer_loras": False,
        "dsa_attention_backend": "tilelang",
        "use_r3": True,
        "fp8_rollout_gpus_per_engine": 16,
        "sglang_mem_fraction_static": 0.85,
        "sglang_lora_backend": "triton",
        "offload_train_disk_dir": "/scratch/miles_train_offload",
        "agent_server_url": "http://localhost:8080",
        "wandb_run_name": "glm52-lora-tb2-daytona",
    },
    shown={"save_traces_dir": "<save-dir>/traces; disabled: none"},
)

_ENGINES_OF_MILES = "the local engine samples without SGLang; leave it out"
_TRAINER_OF_MILES = "the local engine trains with PyTorch on this machine; leave it out"
REHEARSED = replace(
    LOCAL,
    defaults={**LOCAL.defaults, "target_modules": TARGETS},
    refused={
        **LOCAL.refused,
        "fp8_rollout_checkpoint": "the local engine samples with the weights that it trains; leave it out",
        "sglang_context_length": "the local engine has one limit, --max-seq-len; leave it out",
        "lora_base_cpu_backup": "the local engine's base weights stay as they are; leave it out",
        "experts_shared_outer_loras": "the local engine's models have no experts; leave it out",
        "dsa_attention_backend": "the local engine's models attend to every token; leave it out",
        "use_r3": "the local engine's models route to no experts; leave it out",
        "fp8_rollout_gpus_per_engine": _ENGINES_OF_MILES,
        "sglang_mem_fraction_static": _ENGINES_OF_MILES,
        "sglang_lora_backend": _ENGINES_OF_MILES,
        "offload_train_disk_dir": _TRAINER_OF_MILES,
    },
)

ENGINES: Mapping[str, EngineRules] = {"miles": MILES, "local": REHEARSED}

LACKS: Mapping[str, str] = {
    "ref_load": "the reference is the base with its adapter off, so none is loaded; leave it out",
    "skip_prepare": "no checkpoint is converted, Megatron reads the Hugging Face one; leave it out",
    "train_num_nodes": "trainer and engines take turns on all nodes; leave it out",
}


def validate_backend_carries_the_length(glm: Glm52, max_seq_len: int) -> None:
    if glm.dsa_attention_backend == "megatron" and max_seq_len > DENSE_DSA_TOKENS:
        raise OptionsError(
            f"--dsa-attention-backend megatron keeps the scores of all {max_seq_len} x {max_seq_len} token pairs and "
            f"carries about {DENSE_DSA_TOKENS} tokens; pass --dsa-attention-backend tilelang, or --max-seq-len "
            f"{DENSE_DSA_TOKENS}"
        )


def validate_engine_serves_the_sessions(glm: Glm52, max_seq_len: int) -> None:
    if glm.sglang_context_length < max_seq_len:
        raise OptionsError(
            f"--sglang-context-length {glm.sglang_context_length} is below --max-seq-len {max_seq_len}: engines would "
            f"refuse what sessions may grow to; pass --sglang-context-length {max_seq_len}"
        )
    if not 0 < glm.sglang_mem_fraction_static < 1:
        raise OptionsError(
            f"--sglang-mem-fraction-static {glm.sglang_mem_fraction_static}: must be between 0 and 1; documented: 0.85"
        )


def sandboxes(trial_timeout: float) -> SandboxLifetime:
    """Long enough for a trial of `trial_timeout` seconds."""
    return SandboxLifetime(auto_stop=-(-int(trial_timeout) // 60) + AUTO_STOP_SLACK, auto_delete=AUTO_DELETE)


def find_start(options: Options) -> StartPoint:
    """The newest complete adapter where one is named. Raises as `find_adapter_start`."""
    files, machines = options.files, options.machines
    load_dir = Path(files.load_dir) if files.load_dir else None
    ranks = machines.num_nodes * int(machines.num_gpus_per_node or 0)
    return find_adapter_start(Path(str(files.save_dir)), load_dir, files.resume, options.rollout.num_rollout, ranks)


def recipe(options: Options, run: Run) -> Recipe:
    rollout, miles, glm, lora, files = (
        options.rollout, miles_install(options), options.glm52, options.lora, options.files,
    )  # fmt: skip
    assert glm is not None and lora is not None, "groups of --engine miles"
    shape = shape_from(miles.model_shape, GLM_5_2)
    validate_backend_carries_the_length(glm, rollout.max_seq_len)
    validate_engine_serves_the_sessions(glm, rollout.max_seq_len)
    traces = args.traces(files, default=str(Path(str(files.save_dir), "traces")))
    packed = glm.dsa_attention_backend == "tilelang"

    layout = colocated_layout(options.machines.num_nodes, int(options.machines.num_gpus_per_node or 0))
    # Tensor parallel within a node, for its all-reduces; the experts over all nodes, since one cannot hold them.
    sizes = training_sizes(shape, layout, tensor=layout.gpus_per_node, expert=layout.train_gpus)
    validate_batch_feeds_every_rank(rollout, layout, sizes)
    gpus = min(glm.fp8_rollout_gpus_per_engine, layout.rollout_gpus)
    engines = engine_sizes(shape, layout, gpus, "--fp8-rollout-gpus-per-engine")
    trials = rollout.rollout_batch_size * rollout.n_samples_per_prompt
    adapter = shape.adapter_parameters(lora.target_modules, lora.lora_rank)
    expert_adapter = shape.expert_adapter_parameters(
        lora.target_modules, lora.lora_rank, shared_outer=glm.experts_shared_outer_loras
    )
    config = str(Path(str(files.save_dir), "sglang_fp8_rollout.yaml"))
    training = memory.Training(
        sizes, rollout.max_seq_len, gradient_bytes=4, optimizer_offloaded=True, recompute=packed,
        adapter_parameters=adapter, expert_adapter_parameters=expert_adapter, dense_scores=not packed,
    )  # fmt: skip
    serving = memory.Serving(engines, 1, glm.sglang_mem_fraction_static, in_flight=trials, tokens=rollout.max_seq_len)
    weights = memory.trainer_weights_gib(shape, training) * layout.gpus_per_node
    # Miles refuses an offload where nothing trains.
    trains = options.job.mode != "debug_rollout_only"
    offload = Offload(glm.offload_train_disk_dir, weights) if trains else None
    lifetime = sandboxes(run.trial_timeout)

    return Recipe(
        shape=shape,
        layout=layout,
        placement=placement(layout, sizes, engines, options),
        script="train.py",
        arguments=[
            *shape.megatron_arguments,
            *args.checkpoints(str(files.hf_checkpoint), None, files, StartPoint(None, 0, 0), rollout.save_interval),
            *("--megatron-to-hf-mode", "bridge"),
            *("--dsa-attention-backend", glm.dsa_attention_backend),
            *_lora(lora, glm, run.start),
            *args.rollout(files, rollout, still_to_do=run.start.to_go),
            *args.optimizer(rollout.lr),
            *args.grpo(kl=0),
            "--calculate-per-token-loss",
            "--observe-training-entropy",
            # Miles' own guard skips a step with a non-finite gradient; Megatron's check would end the run.
            "--no-check-for-nan-in-loss-and-grad",
            *(("--use-rollout-routing-replay",) if glm.use_r3 else ()),
            *(args.wandb(options.tracking) if run.wandb else ()),
            *args.prometheus(options.tracking),
            *args.dumps(traces),
            *(("--use-miles-dashboard",) if traces else ()),
            *args.parallel(sizes),
            # Dense DSA needs bshd, which carries no packed sequences: no dynamic batches and no recompute with it.
            *("--qkv-format", "thd" if packed else "bshd", "--micro-batch-size", "1"),
            *(args.FULL_RECOMPUTE if packed else ()),
            *args.OFFLOADED_OPTIMIZER,
            "--use-precision-aware-optimizer",
            *args.engines(engines, glm.sglang_mem_fraction_static, miles),
            *_engine(engines, lora, glm, config),
            *args.agent(miles, options.machines.session_server_external_host, synchronous=True),
            *args.PRECISION,
            "--accumulate-allreduce-grads-in-fp32",
            *(_offload(glm.offload_train_disk_dir) if offload is not None else ()),
            *args.placement(layout),
            *args.mode(options.job),
        ],
        training=training,
        serving=serving,
        hf_checkpoint=str(files.hf_checkpoint),
        checkpoints={
            "--hf-checkpoint": str(files.hf_checkpoint),
            "--fp8-rollout-checkpoint": glm.fp8_rollout_checkpoint,
        },
        traces=traces,
        # A dropped group makes Miles sample another batch beside those still running.
        most_in_flight=(2 * rollout.rollout_batch_size - 1) * rollout.n_samples_per_prompt,
        checkpoint_bytes=memory.checkpoint_bytes(shape, adapter + expert_adapter),
        environment={
            "INDEXER_ROPE_NEOX_STYLE": "0",
            "SGLANG_NSA_FORCE_MLA": "1",
            # Expandable segments would break the memory saver, a per-process fraction would starve the engines.
            "PYTORCH_CUDA_ALLOC_CONF": "garbage_collection_threshold:0.8,max_split_size_mb:512",
            "SANDBOX_AUTO_STOP_MINUTES": str(lifetime.auto_stop),
            "SANDBOX_AUTO_DELETE_MINUTES": str(lifetime.auto_delete),
        },
        memory={
            "host_gib_per_node": {
                "engines_weight_backup": (
                    memory.engine_weights_gib(shape, serving) * layout.gpus_per_node if glm.lora_base_cpu_backup else 0
                ),
                "trainer_on_its_way_to_disk": CHUNK_MB * layout.gpus_per_node / 1024 if offload is not None else 0,
            },
            **({"disk_gib_per_node": {"trainer_offload": offload.gib_per_node}} if offload is not None else {}),
        },
        offload=offload,
        generated={config: _fp8_config(glm.fp8_rollout_checkpoint, layout.rollout_gpus)},
        notes=_notes(glm, run, engines, lifetime),
    )


def _offload(folder: str) -> list[str]:
    return [
        *("--offload-train-target", "disk", "--offload-train-disk-dir", folder),
        *("--offload-train-disk-chunk-mb", str(CHUNK_MB)),
    ]


def _lora(lora: Lora, glm: Glm52, start: StartPoint) -> list[str]:
    return [
        *("--lora-rank", str(lora.lora_rank)),
        *("--lora-alpha", str(lora.lora_alpha)),
        *("--lora-dropout", str(lora.lora_dropout)),
        *("--target-modules", ",".join(lora.target_modules)),
        "--no-gradient-accumulation-fusion",
        *(("--experts-shared-outer-loras",) if glm.experts_shared_outer_loras else ()),
        *(("--lora-base-cpu-backup",) if glm.lora_base_cpu_backup else ()),
        *(("--lora-adapter-path", str(start.load_dir)) if start.load_dir is not None else ()),
    ]


def _engine(engines: EngineSizes, lora: Lora, glm: Glm52, config: str) -> list[str]:
    # No DP attention: its collectives fall out of step under colocated weight sync and the engines hang.
    return [
        *("--sglang-ep-size", str(engines.gpus)),
        *("--sglang-attention-backend", "nsa"),
        *("--sglang-nsa-decode-backend", "flashmla_kv"),
        *("--sglang-nsa-prefill-backend", "flashmla_sparse"),
        *("--sglang-page-size", "64"),
        *("--sglang-kv-cache-dtype", "fp8_e4m3"),
        *("--sglang-context-length", str(glm.sglang_context_length)),
        *("--sglang-cuda-graph-max-bs", str(RUNNING)),
        *("--sglang-max-running-requests", str(RUNNING)),
        *("--sglang-chunked-prefill-size", str(min(8192, 2048 * engines.gpus))),
        *("--sglang-watchdog-timeout", "3600"),
        *("--sglang-moe-runner-backend", "triton"),
        "--sglang-disable-shared-experts-fusion",
        *("--sglang-max-lora-rank", str(lora.lora_rank)),
        *("--sglang-lora-backend", glm.sglang_lora_backend),
        *("--sglang-config", config),
    ]


def _fp8_config(checkpoint: str, gpus: int) -> str:
    """SGLang's configuration in YAML; JSON text is a valid YAML string whatever the path holds."""
    return (
        "sglang:\n"
        "  - name: default\n"
        f"    model_path: {json.dumps(checkpoint)}\n"
        "    update_weights: true\n"
        "    server_groups:\n"
        "      - worker_type: regular\n"
        f"        num_gpus: {gpus}\n"
    )


def _notes(glm: Glm52, run: Run, engines: EngineSizes, lifetime: SandboxLifetime) -> list[str]:
    notes = [
        f"{engines.count} engines of {engines.gpus} GPUs serve {glm.fp8_rollout_checkpoint}; --save-dir must "
        "be on storage that all nodes see, since the engines read their configuration there.",
        f"Sandboxes stop {lifetime.auto_stop} minutes after their last use and are deleted after "
        f"{lifetime.auto_delete}; start the agent server with --environment daytona --environment-option "
        f"auto_stop_interval_mins={lifetime.auto_stop} --environment-option "
        f"auto_delete_interval_mins={lifetime.auto_delete}.",
    ]
    if run.start.load_dir is not None:
        notes.append(
            f"Miles keeps no position of a LoRA run and counts from 0 again: rollout 0 here is rollout "
            f"{run.start.done} of the whole, and --num-rollout becomes {run.start.to_go}. Checkpoints go to a new "
            "folder."
        )
    if not glm.lora_base_cpu_backup:
        notes.append("Without --lora-base-cpu-backup samples are off-policy: KL about 1 instead of 1e-4.")
    return notes


LAUNCHER = Launcher(PROGRAM, __doc__ or "", Options, ENGINES, recipe, find_start, sandboxes, LACKS)
main = LAUNCHER.main

if __name__ == "__main__":
    sys.exit(main())

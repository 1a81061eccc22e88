"""Groups of Miles' arguments that recipes share: pure functions from options to tuples, flag and value apart."""

from __future__ import annotations

from launcher.miles.parallel import EngineSizes, Layout, ParallelSizes
from launcher.options import Asynchrony, Files, Job, MilesInstall, Rollout, Tracking
from launcher.save_folder import StartPoint

NO_ABORTED = "miles.rollout.filter_hub.dynamic_sampling_filters.check_no_aborted"
FULL_RECOMPUTE = ("--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", "1")
OFFLOADED_OPTIMIZER = ("--optimizer-cpu-offload", "--overlap-cpu-optimizer-d2h-h2d")
PRECISION = (
    *("--attention-dropout", "0.0"),
    *("--hidden-dropout", "0.0"),
    "--attention-softmax-in-fp32",
    *("--attention-backend", "flash"),
)
MODEL_FAMILY = ("--sglang-tool-call-parser", "glm47", "--sglang-reasoning-parser", "glm45")


def checkpoints(hf_checkpoint: str, ref_load: str | None, files: Files, start: StartPoint, interval: int) -> list[str]:
    arguments = ["--hf-checkpoint", hf_checkpoint]
    if ref_load is not None:
        arguments += ["--ref-load", ref_load]
    if start.load_dir is not None:
        arguments += ["--load", str(start.load_dir)]
    return [*arguments, "--save", str(files.save_dir), "--save-interval", str(interval)]


def traces(files: Files, default: str | None = None) -> str | None:
    """Folder of the dumps; None for none."""
    chosen = files.save_traces_dir or default
    return None if chosen in (None, "disabled") else chosen


def dumps(folder: str | None) -> list[str]:
    return ["--dump-details", folder] if folder else []


def mode(job: Job) -> list[str]:
    return ["--debug-rollout-only"] if job.mode == "debug_rollout_only" else []


def rollout(files: Files, sizes: Rollout, still_to_do: int | None = None) -> list[str]:
    """`still_to_do`: where Miles counts from 0 again, the rollouts of the whole that are left."""
    return [
        *("--prompt-data", str(files.prompt_data)),
        *("--input-key", "prompt"),
        *("--metadata-key", "metadata"),
        "--rollout-shuffle",
        "--balance-data",
        *("--num-rollout", str(sizes.num_rollout if still_to_do is None else still_to_do)),
        *("--rollout-batch-size", str(sizes.rollout_batch_size)),
        *("--n-samples-per-prompt", str(sizes.n_samples_per_prompt)),
        *("--global-batch-size", str(sizes.global_batch_size)),
        *("--rollout-temperature", "0.8"),
        *("--rollout-max-response-len", str(sizes.rollout_max_response_len)),
        *("--max-seq-len", str(sizes.max_seq_len)),
    ]


def grpo(kl: float) -> list[str]:
    """`kl` 0: no reference pass."""
    weight = ["--use-kl-loss", "--kl-loss-coef", str(kl)] if kl else ["--kl-loss-coef", "0.0", "--kl-coef", "0.0"]
    return [
        *("--advantage-estimator", "grpo"),
        *weight,
        *("--kl-loss-type", "low_var_kl"),
        *("--entropy-coef", "0.0"),
        *("--eps-clip", "0.2"),
        *("--eps-clip-high", "0.28"),
    ]


def asynchrony(options: Asynchrony) -> list[str]:
    """Bound and correction only where they are asked for: the documented recipe has neither."""
    bound, correction = options.max_weight_staleness, options.use_tis
    return [
        *("--pause-generation-mode", options.pause_generation_mode),
        *(("--max-weight-staleness", str(bound)) if bound is not None else ()),
        *(
            ("--use-tis", "--tis-clip", str(options.tis_clip), "--tis-clip-low", str(options.tis_clip_low))
            if correction
            else ()
        ),
    ]


def optimizer(lr: float) -> list[str]:
    return [
        *("--optimizer", "adam"),
        *("--lr", str(lr)),
        *("--lr-decay-style", "constant"),
        *("--weight-decay", "0.1"),
        *("--adam-beta1", "0.9"),
        *("--adam-beta2", "0.98"),
    ]


def parallel(sizes: ParallelSizes) -> list[str]:
    return [
        *("--tensor-model-parallel-size", str(sizes.tensor)),
        # Megatron switches it off itself, with a warning, where there is nothing to spread over.
        *(("--sequence-parallel",) if sizes.tensor > 1 else ()),
        *("--pipeline-model-parallel-size", str(sizes.pipeline)),
        *("--context-parallel-size", str(sizes.context)),
        *("--expert-model-parallel-size", str(sizes.expert)),
        *("--expert-tensor-parallel-size", str(sizes.expert_tensor)),
    ]


def placement(layout: Layout) -> list[str]:
    return [
        *(("--colocate",) if layout.colocated else ()),
        *("--actor-num-nodes", str(layout.train_nodes)),
        *("--actor-num-gpus-per-node", str(layout.gpus_per_node)),
        *("--num-gpus-per-node", str(layout.gpus_per_node)),
        *("--rollout-num-gpus", str(layout.rollout_gpus)),
    ]


def engines(sizes: EngineSizes, static_fraction: float, miles: MilesInstall) -> list[str]:
    return [
        *("--rollout-num-gpus-per-engine", str(sizes.gpus)),
        *("--sglang-mem-fraction-static", str(static_fraction)),
        *MODEL_FAMILY,
        *("--sglang-router-port", str(miles.sglang_router_port)),
    ]


def wide_engine(sizes: EngineSizes, decode_batch: int) -> list[str]:
    """Of an engine over several GPUs: experts on all of them, attention in groups where the heads need that."""
    groups = (
        *("--sglang-enable-dp-attention", "--sglang-dp-size", str(sizes.attention_data)),
        *("--sglang-moe-dense-tp-size", "1", "--sglang-enable-dp-lm-head"),
    )
    return [
        *("--sglang-tp-size", str(sizes.gpus)),
        *("--sglang-ep-size", str(sizes.gpus)),
        *(groups if sizes.attention_data > 1 else ()),
        *("--sglang-max-running-requests", str(sizes.attention_data * decode_batch)),
        *("--sglang-chunked-prefill-size", str(sizes.gpus * decode_batch)),
        *("--sglang-cuda-graph-max-bs", str(decode_batch)),
    ]


def agent(miles: MilesInstall, external_host: str | None, *, synchronous: bool) -> list[str]:
    return [
        *("--custom-generate-function-path", "generate.generate"),
        *("--custom-agent-function-path", "swe_agent_function.run"),
        *("--custom-rm-path", "generate.reward_func"),
        # Miles refuses a rollout function beside --fully-async; there the agents' numbers are logged beside its own.
        *(
            ("--rollout-function-path", "generate.RolloutFn")
            if synchronous
            else ("--custom-rollout-log-function-path", "generate.log_rollout")
        ),
        *("--dynamic-sampling-filter-path", NO_ABORTED),
        *("--tito-model", "glm47"),
        "--use-session-server",
        *("--session-server-port", str(miles.session_server_port)),
        *("--session-server-workers", str(miles.session_server_workers)),
        *(("--session-server-external-host", external_host) if external_host else ()),
    ]


def wandb(tracking: Tracking, *, random_suffix: bool = True) -> list[str]:
    """Without the key: the workers have it from their environment or netrc."""
    return [
        "--use-wandb",
        *("--wandb-project", str(tracking.wandb_project)),
        *("--wandb-group", str(tracking.wandb_run_name)),
        *(("--wandb-team", tracking.wandb_team) if tracking.wandb_team else ()),
        *(() if random_suffix else ("--disable-wandb-random-suffix",)),
    ]


def prometheus(tracking: Tracking) -> list[str]:
    if not tracking.use_prometheus:
        return []
    return [
        "--use-prometheus",
        *("--prometheus-port", str(tracking.prometheus_port)),
        *("--prometheus-run-name", str(tracking.prometheus_run_name)),
    ]

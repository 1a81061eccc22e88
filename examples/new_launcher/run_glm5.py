"""GLM-5 (744B-A40B), every weight trained: synchronous GRPO, trainer and engines take turns on the same GPUs."""

import sys
from dataclasses import replace

from launcher.engines import LOCAL, miles_rules
from launcher.main import Launcher
from launcher.miles import arguments as args
from launcher.miles import memory, parallel
from launcher.miles.placement import placement
from launcher.miles.recipe import Recipe, Run
from launcher.model_shape import BF16, GLM_5_2
from launcher.options import LocalOptions, miles_install
from launcher.save_folder import tracked_start

GLM_5 = replace(GLM_5_2, name="GLM-5", rope_theta=1_000_000)
REFERENCE = "/models/zai-org/GLM-5_torch_dist"
TENSOR_PARALLEL, GPUS_PER_ENGINE = 8, 32
TOKENS_PER_GPU, STATIC_FRACTION = 16384, 0.7  # of a micro-batch; of a GPU's memory, for SGLang

MILES = miles_rules(
    {
        "num_nodes": 64,
        "hf_checkpoint": "/models/zai-org/GLM-5",
        "save_dir": "/root/GLM-5_agent",
        "save_traces_dir": "/root/GLM-5_agent/traces",
        "prompt_data": "/root/swe_train.jsonl",
        "max_seq_len": 65536,
        "num_rollout": 200,
        "save_interval": 20,
        "lr": 1e-6,
        "rollout_batch_size": 16,
        "n_samples_per_prompt": 8,
        "global_batch_size": 128,
        "wandb_run_name": "glm5-swe",
        "agent_server_url": "http://localhost:11000",
    }
)


def recipe(options: LocalOptions, run: Run) -> Recipe:
    files, rollout, miles = options.files, options.rollout, miles_install(options)
    layout = parallel.colocated_layout(options.machines.num_nodes, int(options.machines.num_gpus_per_node or 0))
    expert_parallel = parallel.largest_expert_parallel(GLM_5, layout.train_gpus)
    sizes = parallel.training_sizes(GLM_5, layout, TENSOR_PARALLEL, expert_parallel)
    parallel.validate_batch_feeds_every_rank(rollout, layout, sizes)
    engines = parallel.engine_sizes(GLM_5, layout, GPUS_PER_ENGINE, "--num-gpus-per-node")
    return Recipe(
        shape=GLM_5,
        layout=layout,
        placement=placement(layout, sizes, engines, options),
        script="train.py",
        arguments=[
            *GLM_5.megatron_arguments,
            *args.checkpoints(str(files.hf_checkpoint), REFERENCE, files, run.start, rollout.save_interval),
            *(*args.rollout(files, rollout), *args.optimizer(rollout.lr), *args.grpo(kl=0.01)),
            *(*args.prometheus(options.tracking), *(args.wandb(options.tracking) if run.wandb else ())),
            *(*args.dumps(args.traces(files)), *args.parallel(sizes), *args.FULL_RECOMPUTE, *args.OFFLOADED_OPTIMIZER),
            *("--use-dynamic-batch-size", "--max-tokens-per-gpu", str(TOKENS_PER_GPU)),
            *args.engines(engines, STATIC_FRACTION, miles),
            *args.agent(miles, options.machines.session_server_external_host, synchronous=True),
            *(*args.PRECISION, *args.placement(layout), *args.mode(options.job)),
        ],
        training=memory.Training(sizes, tokens=rollout.max_seq_len, gradient_bytes=2, optimizer_offloaded=True),
        serving=memory.Serving(
            engines, BF16, STATIC_FRACTION, in_flight=rollout.global_batch_size, tokens=rollout.max_seq_len
        ),
        hf_checkpoint=str(files.hf_checkpoint),
        checkpoints={"--hf-checkpoint": str(files.hf_checkpoint), "the reference": REFERENCE},
        traces=args.traces(files),
        most_in_flight=(2 * rollout.rollout_batch_size - 1) * rollout.n_samples_per_prompt,
        checkpoint_bytes=memory.checkpoint_bytes(GLM_5, None),
    )


LAUNCHER = Launcher("run_glm5.py", __doc__ or "", LocalOptions, {"miles": MILES, "local": LOCAL}, recipe, tracked_start)

if __name__ == "__main__":
    sys.exit(LAUNCHER.main())

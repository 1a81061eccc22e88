"""Driver for a Miles that ships none, as its package on PyPI: `run.py --train-script benchmarks/gpu/train.py`.

Synchronous GRPO: rollout, training and the weights' way to the engines take turns, each waking up what it needs and
putting away what it does not. Prints one line a phase, with seconds since the start.
"""

# pyright: reportMissingImports=false
# Miles, Megatron and SGLang are on the machine with the GPUs only.

from __future__ import annotations

import asyncio
import time
from typing import Any

from miles.ray.placement_group import (
    create_placement_groups,
    create_rollout_manager,
    create_training_models,
)
from miles.utils.arguments import parse_args
from miles.utils.tracking_utils import finish_tracking, init_tracking
from sglang.srt.constants import (
    GPU_MEMORY_TYPE_CUDA_GRAPH,
    GPU_MEMORY_TYPE_KV_CACHE,
    GPU_MEMORY_TYPE_WEIGHTS,
)

_BEGUN = time.monotonic()
_ENGINE_MEMORY = (GPU_MEMORY_TYPE_CUDA_GRAPH, GPU_MEMORY_TYPE_KV_CACHE, GPU_MEMORY_TYPE_WEIGHTS)


def phase(text: str) -> None:
    print(f"phase {time.monotonic() - _BEGUN:7.1f} s  {text}", flush=True)


def is_due(rollout_id: int, interval: int | None, last: int) -> bool:
    """At the end of every interval, and after the last rollout."""
    return interval is not None and (rollout_id == last or (rollout_id + 1) % interval == 0)


class Run:
    """The rollout manager with its engines, and the trainer."""

    def __init__(self, args: Any, manager: Any, actor: Any) -> None:
        self.args = args
        self.manager = manager
        self.actor = actor

    async def send_weights(self) -> None:
        """To the engines, which keep no KV cache in memory meanwhile."""
        if self.args.offload_rollout:
            await self.manager.onload_weights.remote()
        await self.actor.update_weights()
        if self.args.offload_rollout:
            await self.manager.onload_kv.remote()

    async def compare_weights(self, which: str) -> None:
        """Raises where an engine's weights are not those that it held when they were last noted."""
        await self.manager.check_weights.remote(action="compare")
        phase(f"{which}: equal on every engine")

    async def send_again(self) -> None:
        """The same weights over random ones: what an engine then holds is what the trainer has, not what was left."""
        for action in ("snapshot", "reset_tensors"):
            await self.manager.check_weights.remote(action=action)
        await self.actor.update_weights()
        await self.compare_weights("trained weights, sent again")

    async def step(self, rollout_id: int) -> None:
        args = self.args
        samples = await self.manager.generate.remote(rollout_id)
        phase(f"rollout {rollout_id}: sampled")
        if args.offload_rollout:
            await self.manager.offload.remote(tags=list(_ENGINE_MEMORY))
            phase(f"rollout {rollout_id}: engines put away")
        await self.actor.train(rollout_id, samples)
        phase(f"rollout {rollout_id}: trained")
        if not args.debug_rollout_only and is_due(rollout_id, args.save_interval, args.num_rollout - 1):
            await self.actor.save_model(rollout_id, force_sync=True)
            if args.rollout_global_dataset:
                await self.manager.save.remote(rollout_id)
            phase(f"rollout {rollout_id}: saved")
        if args.offload_train:
            await self.actor.offload()
        else:
            await self.actor.clear_memory()
        await self.send_weights()
        phase(f"rollout {rollout_id}: weights sent")


async def train(args: Any) -> None:
    groups = create_placement_groups(args)
    phase("GPUs taken")
    init_tracking(args)
    manager, _ = create_rollout_manager(args, groups["rollout"])
    phase("rollout manager and engines up")
    actor, _ = await create_training_models(args, groups, manager)
    phase("trainer up")
    run = Run(args, manager, actor)
    await run.send_weights()
    phase("first weights sent")
    if args.check_weight_update_equal and args.start_rollout_id == 0:
        # Miles had the engines note the weights of --hf-checkpoint and overwrite them at random.
        await run.compare_weights("first weights")
    for rollout_id in range(args.start_rollout_id, args.num_rollout):
        await run.step(rollout_id)
    if args.check_weight_update_equal:
        await run.send_again()
    await manager.dispose.remote()


def main() -> None:
    args = parse_args()
    phase("arguments parsed")
    try:
        asyncio.run(train(args))
    finally:
        finish_tracking()


if __name__ == "__main__":
    main()

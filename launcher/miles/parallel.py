"""How the trainer and the rollout engines are spread over the GPUs: derived from model and machines, never guessed."""

from __future__ import annotations

from dataclasses import dataclass

from launcher.errors import OptionsError
from launcher.model_shape import ModelShape
from launcher.options import Rollout


@dataclass(frozen=True)
class Layout:
    """Nodes and GPUs. Colocated: trainer and engines take turns on the same GPUs."""

    gpus_per_node: int
    train_nodes: int
    rollout_nodes: int
    colocated: bool

    @property
    def nodes(self) -> int:
        return self.train_nodes if self.colocated else self.train_nodes + self.rollout_nodes

    @property
    def train_gpus(self) -> int:
        return self.train_nodes * self.gpus_per_node

    @property
    def rollout_gpus(self) -> int:
        return self.rollout_nodes * self.gpus_per_node


@dataclass(frozen=True)
class ParallelSizes:
    """Of Megatron. With PP = CP = 1: tensor x data = expert x expert_tensor x expert_data = training GPUs."""

    tensor: int
    expert: int
    data: int
    expert_data: int
    pipeline: int = 1
    context: int = 1
    expert_tensor: int = 1


@dataclass(frozen=True)
class EngineSizes:
    """Of one SGLang engine. `attention_data` x `attention_tensor` = gpus; data above 1 is DP attention."""

    count: int
    gpus: int
    attention_tensor: int
    attention_data: int


def colocated_layout(nodes: int, gpus_per_node: int) -> Layout:
    return Layout(gpus_per_node, nodes, nodes, colocated=True)


def split_layout(nodes: int, train_nodes: int, gpus_per_node: int) -> Layout:
    """Training nodes first, the rest for rollout. Raises OptionsError when no node is left for one of the two."""
    if not 0 < train_nodes < nodes:
        choices = "pass at least --num-nodes 2" if nodes < 2 else f"pass --train-num-nodes {_span(1, nodes - 1)}"
        raise OptionsError(
            f"--train-num-nodes {train_nodes} of --num-nodes {nodes} leaves {max(nodes - train_nodes, 0)} nodes for "
            f"rollout and {train_nodes} for training, and each needs one; {choices}"
        )
    return Layout(gpus_per_node, train_nodes, nodes - train_nodes, colocated=False)


def largest_tensor_parallel(shape: ModelShape, gpus_per_node: int, at_most: int) -> int:
    """Divides the heads and stays within a node, whose links its all-reduces need."""
    return max(t for t in range(1, at_most + 1) if shape.heads % t == 0 and gpus_per_node % t == 0)


def largest_expert_parallel(shape: ModelShape, train_gpus: int) -> int:
    """Divides the experts and the training GPUs: what Megatron allows with PP = CP = ETP = 1.

    Tensor parallelism of the attention does not limit it: the experts are spread over all training GPUs anew.
    """
    return max(e for e in range(1, train_gpus + 1) if shape.experts % e == 0 and train_gpus % e == 0)


def training_sizes(shape: ModelShape, layout: Layout, tensor: int, expert: int) -> ParallelSizes:
    """Raises OptionsError, with the valid choices, for sizes that cannot work."""
    gpus, per_node = layout.train_gpus, layout.gpus_per_node
    if shape.heads % tensor or per_node % tensor:
        valid = [n for n in range(1, 17) if shape.heads % n == 0]
        raise OptionsError(
            f"--num-gpus-per-node {per_node}: tensor parallel {tensor} must divide the {shape.heads} heads of "
            f"{shape.name} and the GPUs of a node; {_choices('--num-gpus-per-node', valid)}"
        )
    if shape.experts % expert or gpus % expert:
        valid = [n for n in range(1, shape.experts // per_node + 1) if shape.experts % (n * per_node) == 0]
        raise OptionsError(
            f"{layout.train_nodes} nodes x {per_node} GPUs = {gpus} GPUs: expert parallel {expert} does not divide the "
            f"{shape.experts} experts of {shape.name}; with {per_node} GPUs a node {_choices('--num-nodes', valid)}"
        )
    return ParallelSizes(tensor=tensor, expert=expert, data=gpus // tensor, expert_data=gpus // expert)


def engine_sizes(
    shape: ModelShape, layout: Layout, gpus: int, option: str, *, attention_tensor: int | None = None
) -> EngineSizes:
    """Engines of `gpus` GPUs each, which spread the experts over all of them, and the attention as well unless
    `attention_tensor` says over how many.

    Raises OptionsError naming `option` when the GPUs do not divide, or experts or heads cannot be spread so.
    """
    world = layout.rollout_gpus
    valid = [
        n
        for n in range(1, world + 1)
        if world % n == 0 and shape.experts % n == 0 and (attention_tensor is not None or shape.heads % n == 0)
        if n <= layout.gpus_per_node or n % layout.gpus_per_node == 0
    ]
    attention = attention_tensor or gpus
    if gpus not in valid or gpus % attention or shape.heads % attention:
        raise OptionsError(
            f"{option} {gpus}: engines of {gpus} GPUs must divide the {world} rollout GPUs and, of {shape.name}, the "
            f"{shape.experts} experts and without DP attention the {shape.heads} heads; {_choices(option, valid)}"
        )
    return EngineSizes(world // gpus, gpus, attention, gpus // attention)


def validate_batch_feeds_every_rank(
    rollout: Rollout, layout: Layout, sizes: ParallelSizes, nodes_option: str = "--num-nodes"
) -> None:
    """Raises OptionsError, with the choices, where the data-parallel ranks cannot share an optimizer step evenly.

    Megatron counts a step in micro-batches of one trajectory and a rank, also where Miles packs them dynamically.
    """
    batch = rollout.global_batch_size
    if batch % sizes.data == 0:
        return
    trajectories = rollout.rollout_batch_size * rollout.n_samples_per_prompt
    per_node = layout.gpus_per_node // sizes.tensor
    nodes = [n for n in range(1, batch // per_node + 1) if batch % (n * per_node) == 0]
    batches = [n for n in range(1, trajectories + 1) if trajectories % n == 0 and n % sizes.data == 0]
    ways = [_choices(nodes_option, nodes)] if nodes else []
    ways += [_choices("--global-batch-size", batches)] if batches else []
    ways = ways or [f"make --rollout-batch-size x --n-samples-per-prompt a multiple of {sizes.data}"]
    raise OptionsError(
        f"--global-batch-size {batch} cannot be shared evenly by {sizes.data} data-parallel ranks ({layout.train_gpus} "
        f"training GPUs, {sizes.tensor} a replica of the attention); {', or '.join(ways)}"
    )


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


def _choices(option: str, valid: list[int]) -> str:
    return f"pass {option} {', '.join(map(str, valid))}" if valid else f"no {option} works"

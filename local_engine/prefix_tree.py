"""Sequences packed as a prefix tree, so that the prompt of a group and the system prompt of all are computed once.

Tokens lie depth first. The tree is cut into blocks - a stretch that several sequences share, or a small subtree - and a
block attends to the stretches above it and to itself: exact, and without the large empty parts of a full mask.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false
# Transformers has no complete types.

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface

ATTENTION = "prefix_tree"
SMALL = 64  # tokens of a subtree that is not cut further: below, a call costs more than the part of the mask it saves


@dataclass
class Block:
    """Nodes [start, end), the numbers of the blocks above them, and mask (end - start, nodes above + end - start)."""

    start: int
    end: int
    above: tuple[int, ...]
    mask: Tensor


@dataclass
class PrefixTree:
    """ids, positions: (nodes,). `where[s][i]` is the node of token i of sequence s."""

    ids: list[int] = field(default_factory=list[int])
    positions: list[int] = field(default_factory=list[int])
    where: list[list[int]] = field(default_factory=list[list[int]])
    blocks: list[Block] = field(default_factory=list[Block])


def pack(sequences: Sequence[Sequence[int]]) -> PrefixTree:
    """Build the tree of non-empty sequences; equal prefixes become the same nodes."""
    if not sequences or not all(sequences):
        raise ValueError("a prefix tree needs at least one sequence and no empty one")
    tree = PrefixTree(where=[[] for _ in sequences])
    _grow(tree, sequences, list(range(len(sequences))), 0, ())
    return tree


def _grow(
    tree: PrefixTree,
    sequences: Sequence[Sequence[int]],
    members: list[int],
    depth: int,
    above: tuple[int, ...],
) -> None:
    """Add what the members, equal up to `depth`, hold from there on."""
    if sum(len(sequences[m]) - depth for m in members) <= SMALL:
        _add_subtree(tree, sequences, members, depth, above)
        return
    first, shared = sequences[members[0]], depth
    shortest = min(len(sequences[m]) for m in members)
    while shared < shortest and all(sequences[m][shared] == first[shared] for m in members):
        shared += 1
    if shared > depth:
        start, end = len(tree.ids), len(tree.ids) + shared - depth
        tree.ids += first[depth:shared]
        tree.positions += range(depth, shared)
        for m in members:
            tree.where[m] += range(start, end)
        tree.blocks.append(_block(tree, start, above, torch.ones(end - start, end - start, dtype=torch.bool).tril_()))
        above = (*above, len(tree.blocks) - 1)
    children: dict[int, list[int]] = {}
    for m in members:
        if len(sequences[m]) > shared:
            children.setdefault(sequences[m][shared], []).append(m)
    for child in children.values():
        _grow(tree, sequences, child, shared, above)


def _add_subtree(
    tree: PrefixTree,
    sequences: Sequence[Sequence[int]],
    members: list[int],
    depth: int,
    above: tuple[int, ...],
) -> None:
    start = len(tree.ids)
    children: dict[tuple[int, int], int] = {}
    parents: list[int] = []
    for m in members:
        node = -1
        for position in range(depth, len(sequences[m])):
            token = sequences[m][position]
            child = children.setdefault((node, token), len(parents))
            if child == len(parents):
                parents.append(node)
                tree.ids.append(token)
                tree.positions.append(position)
            node = child
            tree.where[m].append(start + node)
    if not parents:
        return
    own = torch.zeros(len(parents), len(parents), dtype=torch.bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            own[node] = own[parent]
        own[node, node] = True
    tree.blocks.append(_block(tree, start, above, own))


def _block(tree: PrefixTree, start: int, above: tuple[int, ...], own: Tensor) -> Block:
    seen = torch.ones(len(own), sum(tree.blocks[n].end - tree.blocks[n].start for n in above), dtype=torch.bool)
    return Block(start, start + len(own), above, torch.cat([seen, own], 1))


def tree_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    *,
    tree: PrefixTree,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention of one layer over a packed tree; query (1, heads, nodes, dim) -> (1, nodes, heads, dim)."""
    scale = scaling or query.shape[-1] ** -0.5
    groups = query.shape[1] // key.shape[1]
    # Cut once: the gradient of a piece that many blocks read is then added up in the size of the piece.
    sizes = [block.end - block.start for block in tree.blocks]
    queries, keys, values = (x[0].split(sizes, 1) for x in (query, key, value))
    parts: list[Tensor] = []
    for number, block in enumerate(tree.blocks):
        seen = [*block.above, number]
        block_keys, block_values = (torch.cat([x[n] for n in seen], 1) for x in (keys, values))
        hidden = ~block.mask.to(query.device).repeat(groups, 1)
        # Query heads that share a key head are laid out as more queries. Plain products: on CPUs without matrix units
        # the fused kernel's backward pass in bfloat16 is five times slower.
        grouped = queries[number].reshape(block_keys.shape[0], -1, query.shape[-1])
        scores = (grouped @ block_keys.transpose(1, 2)).float() * scale
        weights = torch.softmax(scores.masked_fill(hidden, float("-inf")), -1).to(block_values.dtype)
        parts.append((weights @ block_values).view(query.shape[1], sizes[number], -1))
    return torch.cat(parts, 1).transpose(0, 1)[None], None


AttentionInterface.register(ATTENTION, tree_attention)  # pyright: ignore[reportArgumentType]

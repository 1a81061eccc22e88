"""Sequences packed as a prefix tree, so that the prompt of a group and the system prompt of all are computed once.

The first level is the trunk, the tokens that all sequences begin with; what hangs below it is split into branches that
share nothing with each other. Attention is computed for the trunk and for each branch (over trunk and branch), which
is exact and leaves out the large empty parts of a full mask.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false
# Transformers has no complete types.

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface

ATTENTION = "prefix_tree"


@dataclass
class Branch:
    """Nodes [start, end) of the flat input; mask (end - start, trunk + end - start), true where a node may look."""

    start: int
    end: int
    mask: Tensor


@dataclass
class PrefixTree:
    """ids, positions: (nodes,). `where[s][i]` is the node of token i of sequence s."""

    ids: list[int]
    positions: list[int]
    where: list[list[int]]
    trunk: int
    branches: list[Branch]


def pack(sequences: Sequence[Sequence[int]]) -> PrefixTree:
    """Build the tree of non-empty sequences; equal prefixes become the same nodes."""
    if not sequences or not all(sequences):
        raise ValueError("a prefix tree needs at least one sequence and no empty one")
    shortest = min(len(s) for s in sequences)
    trunk = 0
    while trunk < shortest and len({s[trunk] for s in sequences}) == 1:
        trunk += 1
    ids, positions = list(sequences[0][:trunk]), list(range(trunk))
    where = [list(range(trunk)) for _ in sequences]
    branches: list[Branch] = []
    by_first: dict[int, list[int]] = {}
    for number, sequence in enumerate(sequences):
        if len(sequence) > trunk:
            by_first.setdefault(sequence[trunk], []).append(number)
    for numbers in by_first.values():
        branches.append(_branch(sequences, numbers, trunk, ids, positions, where))
    return PrefixTree(ids, positions, where, trunk, branches)


def _branch(
    sequences: Sequence[Sequence[int]],
    numbers: list[int],
    trunk: int,
    ids: list[int],
    positions: list[int],
    where: list[list[int]],
) -> Branch:
    start = len(ids)
    children: dict[tuple[int, int], int] = {}
    parents: list[int] = []
    for number in numbers:
        node = -1
        for position in range(trunk, len(sequences[number])):
            token = sequences[number][position]
            child = children.get((node, token))
            if child is None:
                child = len(ids) - start
                children[node, token] = child
                ids.append(token)
                positions.append(position)
                parents.append(node)
            node = child
            where[number].append(start + node)
    own = torch.zeros(len(parents), len(parents), dtype=torch.bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            own[node] = own[parent]
        own[node, node] = True
    return Branch(start, len(ids), torch.cat([torch.ones(len(parents), trunk, dtype=torch.bool), own], 1))


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
    attend = torch.nn.functional.scaled_dot_product_attention
    heads, kv_heads = query.shape[1], key.shape[1]
    if heads != kv_heads:
        key, value = (x.repeat_interleave(heads // kv_heads, 1) for x in (key, value))
    trunk, parts = tree.trunk, list[Tensor]()
    if trunk:
        front = slice(0, trunk)
        parts.append(attend(query[:, :, front], key[:, :, front], value[:, :, front], is_causal=True, scale=scaling))
    for branch in tree.branches:
        nodes = slice(branch.start, branch.end)
        keys, values = (
            torch.cat([x[:, :, :trunk], x[:, :, nodes]], 2) if trunk else x[:, :, nodes] for x in (key, value)
        )
        mask = branch.mask.to(query.device)[None, None]
        parts.append(attend(query[:, :, nodes], keys, values, attn_mask=mask, scale=scaling))
    return torch.cat(parts, 2).transpose(1, 2), None


AttentionInterface.register(ATTENTION, tree_attention)  # pyright: ignore[reportArgumentType]

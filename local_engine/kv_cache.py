"""Keys and values of all open sessions, and the attention that reads them.

Every session owns one slot per layer. What most sessions share - system prompt and example turns - is the
trunk: stored once, read by all of them with one matrix product, and joined with the session's own part
under one softmax. On a CPU this costs a third of attending over full copies.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false
# Transformers has no complete types.

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface

ATTENTION = "session_slots"


@dataclass
class Segment:
    """Tokens of one session (or of the trunk, slot None) that are new in this forward pass."""

    slot: int | None
    start: int  # index of the first one in the flat input
    length: int
    own_before: int  # tokens the slot already holds
    trunk_used: int  # leading trunk tokens that are this session's own prefix


@dataclass
class SlotBatch:
    """One forward pass: first `rows` single tokens (one per decoding session), then longer segments.

    `own_lengths` and `trunk_used` are (rows,) and count the token being decoded.
    """

    store: "SlotStore"
    slots: Tensor
    own_lengths: Tensor
    trunk_used: Tensor
    segments: list[Segment]
    bias: Tensor = field(init=False)  # (rows, 1, 1, trunk + longest own), 0 or -inf
    longest: int = field(init=False)
    gather: bool = field(init=False)

    def __post_init__(self) -> None:
        rows, device = len(self.slots), self.slots.device
        self.longest = int(self.own_lengths.max()) if rows else 0
        # Copying the rows that decode is cheaper than reading all slots only while they are few.
        self.gather = rows * 2 < self.store.slots
        slots = rows if self.gather else self.store.slots
        trunk, own = torch.zeros(slots, dtype=torch.long), torch.ones(slots, dtype=torch.long)
        index = torch.arange(rows) if self.gather else self.slots.cpu()
        trunk[index], own[index] = self.trunk_used.cpu(), self.own_lengths.cpu()
        hidden = torch.cat(
            [
                torch.arange(self.store.trunk_length)[None] >= trunk[:, None],
                torch.arange(self.longest)[None] >= own[:, None],
            ],
            dim=1,
        )
        bias = torch.zeros(hidden.shape).masked_fill_(hidden, float("-inf"))
        self.bias = bias[:, None, None].to(device)


class SlotStore:
    """Keys and values, per layer (slots, kv heads, room, head dim), and the trunk (kv heads, tokens, head dim)."""

    ROOM = 64  # tokens by which a layer grows

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.trunk_length = 0
        self._keys: dict[int, Tensor] = {}
        self._values: dict[int, Tensor] = {}
        self._trunk: dict[int, tuple[Tensor, Tensor]] = {}

    def clear(self) -> None:
        """Forget everything, as after a change of weights; memory is kept for the next step."""
        self.trunk_length = 0
        self._trunk.clear()

    def release(self) -> None:
        """Give the memory back."""
        self.clear()
        self._keys.clear()
        self._values.clear()

    def copy_own(self, source: int, target: int, tokens: int) -> None:
        """Copy the first `tokens` own tokens of one slot to another, in every layer."""
        for store in (self._keys, self._values):
            for layer in store.values():
                layer[target, :, :tokens] = layer[source, :, :tokens]

    def write(self, layer: int, slot: int, position: int, keys: Tensor, values: Tensor) -> None:
        """keys, values: (kv heads, tokens, head dim) of one slot from `position` on."""
        end = position + keys.shape[1]
        self._reserve(layer, end, keys, values)
        self._keys[layer][slot, :, position:end] = keys
        self._values[layer][slot, :, position:end] = values

    def write_rows(self, layer: int, slots: Tensor, positions: Tensor, keys: Tensor, values: Tensor, end: int) -> None:
        """keys, values: (kv heads, rows, head dim), one token for each slot at its own position (< end)."""
        self._reserve(layer, end, keys, values)
        self._keys[layer][slots, :, positions] = keys.transpose(0, 1)
        self._values[layer][slots, :, positions] = values.transpose(0, 1)

    def set_trunk(self, layer: int, keys: Tensor, values: Tensor) -> None:
        self._trunk[layer] = keys.contiguous(), values.contiguous()

    def trunk(self, layer: int) -> tuple[Tensor, Tensor]:
        return self._trunk[layer]

    def own(self, layer: int) -> tuple[Tensor, Tensor]:
        return self._keys[layer], self._values[layer]

    def _reserve(self, layer: int, end: int, keys: Tensor, values: Tensor) -> None:
        for store, new in ((self._keys, keys), (self._values, values)):
            old = store.get(layer)
            if old is not None and old.shape[2] >= end:
                continue
            room = -(-end // self.ROOM) * self.ROOM
            # Masked positions are multiplied by a weight of 0: they must be finite.
            grown = new.new_zeros(self.slots, new.shape[0], room, new.shape[2])
            if old is not None:
                grown[:, :, : old.shape[2]] = old
            store[layer] = grown


def session_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    *,
    slot_batch: SlotBatch,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention of one layer for a SlotBatch; query (1, heads, tokens, dim) -> (1, tokens, heads, dim)."""
    query, key, value = query[0], key[0], value[0]
    layer, scale = int(module.layer_idx), scaling or query.shape[-1] ** -0.5
    rows = len(slot_batch.slots)
    out = value.new_empty(query.shape[0], query.shape[1], value.shape[-1])

    def prefill(segment: Segment) -> None:
        part = slice(segment.start, segment.start + segment.length)
        out[:, part] = _prefill(layer, query[:, part], key[:, part], value[:, part], scale, slot_batch.store, segment)

    # A new trunk is the first segment, and the rows of the same pass read it already.
    trunk = [segment for segment in slot_batch.segments if segment.slot is None]
    others = [segment for segment in slot_batch.segments if segment.slot is not None]
    for segment in trunk:
        prefill(segment)
    if rows:
        out[:, :rows] = _decode(layer, query[:, :rows], key[:, :rows], value[:, :rows], scale, slot_batch)
    for segment in others:
        prefill(segment)
    return out.transpose(0, 1)[None], None


def _prefill(
    layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float, store: SlotStore, segment: Segment
) -> Tensor:
    if segment.slot is None:
        store.set_trunk(layer, key, value)
        keys, values, before = key, value, 0
    else:
        store.write(layer, segment.slot, segment.own_before, key, value)
        end, used = segment.own_before + segment.length, segment.trunk_used
        keys, values = (part[segment.slot, :, :end] for part in store.own(layer))
        if used:
            trunk_keys, trunk_values = store.trunk(layer)
            keys, values = torch.cat([trunk_keys[:, :used], keys], 1), torch.cat([trunk_values[:, :used], values], 1)
        before = used + segment.own_before
    groups = query.shape[0] // keys.shape[0]
    seen = torch.arange(keys.shape[1], device=query.device)[None] <= (
        torch.arange(segment.length, device=query.device)[:, None] + before
    )
    # Query heads that share a key head are laid out as more queries: no copy of keys for each of them.
    grouped = query.reshape(1, keys.shape[0], groups * segment.length, query.shape[-1])
    out = torch.nn.functional.scaled_dot_product_attention(
        grouped, keys[None], values[None], attn_mask=seen.repeat(groups, 1)[None, None], scale=scale
    )
    return out.reshape(query.shape[0], segment.length, values.shape[-1])


def _decode(layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float, batch: SlotBatch) -> Tensor:
    store, kv_heads, rows = batch.store, key.shape[0], query.shape[1]
    store.write_rows(layer, batch.slots, batch.own_lengths - 1, key, value, batch.longest)
    keys, values = store.own(layer)
    keys, values = keys[:, :, : batch.longest], values[:, :, : batch.longest]
    grouped = query.view(kv_heads, -1, rows, query.shape[-1])  # (kv heads, groups, rows, dim)
    if batch.gather:
        keys, values = keys[batch.slots], values[batch.slots]
        slots = rows
    else:
        slots = store.slots
        scattered = query.new_zeros(kv_heads, grouped.shape[1], slots, query.shape[-1])
        scattered[:, :, batch.slots] = grouped
        grouped = scattered
    groups, trunk = grouped.shape[1], store.trunk_length
    own_scores = grouped.permute(2, 0, 1, 3) @ keys.transpose(-1, -2)  # (slots, kv heads, groups, own)
    if trunk:
        trunk_keys, _ = store.trunk(layer)
        scores = (grouped.reshape(kv_heads, groups * slots, -1) @ trunk_keys.transpose(-1, -2)).view(
            kv_heads, groups, slots, trunk
        )
        own_scores = torch.cat([scores.permute(2, 0, 1, 3), own_scores], -1)
    weights = torch.softmax(own_scores.float() * scale + batch.bias, -1).to(values.dtype)
    out = weights[..., trunk:] @ values
    if trunk:
        _, trunk_values = store.trunk(layer)
        shared = weights[..., :trunk].permute(1, 2, 0, 3).reshape(kv_heads, groups * slots, trunk) @ trunk_values
        out = out + shared.view(kv_heads, groups, slots, -1).permute(2, 0, 1, 3)
    if not batch.gather:
        out = out[batch.slots]
    return out.permute(1, 2, 0, 3).reshape(query.shape[0], rows, -1)


AttentionInterface.register(ATTENTION, session_attention)  # pyright: ignore[reportArgumentType]

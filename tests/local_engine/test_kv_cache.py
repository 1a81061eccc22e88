"""The store of keys and values, and its attention against a plain softmax over full copies."""

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from local_engine.kv_cache import Segment, SlotBatch, SlotStore, session_attention

HEADS, KV_HEADS, DIM = 4, 2, 8
LAYER = SimpleNamespace(layer_idx=0)


def reference(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """query (heads, dim) of the last position; keys, values (kv heads, tokens, dim)."""
    keys, values = (x.repeat_interleave(HEADS // KV_HEADS, 0) for x in (keys, values))
    weights = torch.softmax((keys @ query[:, :, None])[..., 0] * DIM**-0.5, -1)
    return (weights[:, None] @ values)[:, 0]


class Filled:
    """A store with a trunk of 20 tokens and slots of different lengths, and full copies beside it."""

    def __init__(self, slots: int, own: list[int], trunk_used: list[int]) -> None:
        draw = torch.Generator().manual_seed(0)
        self.store = SlotStore(slots)
        self.store.trunk_length = 20
        self.trunk = torch.randn(2, KV_HEADS, 20, DIM, generator=draw)
        self.store.set_trunk(0, *self.trunk)
        self.copies: list[Tensor] = []
        for slot, (length, used) in enumerate(zip(own, trunk_used, strict=True)):
            mine = torch.randn(2, KV_HEADS, length, DIM, generator=draw)
            if length:
                self.store.write(0, slot, 0, *mine)
            self.copies.append(torch.cat([self.trunk[:, :, :used], mine], 2))


@pytest.mark.parametrize("slots", [3, 12])
def test_decoding_reads_trunk_and_own_tokens(slots: int) -> None:
    """Trunk used in full, in part and not at all; with 12 slots the three rows are gathered."""
    own, used = [5, 70, 0], [20, 7, 20]
    filled = Filled(slots, own, used)
    query, key, value = (
        torch.randn(1, HEADS, 3, DIM),
        torch.randn(1, KV_HEADS, 3, DIM),
        torch.randn(1, KV_HEADS, 3, DIM),
    )
    order = [2, 0, 1]
    batch = SlotBatch(
        filled.store,
        slots=torch.tensor(order),
        own_lengths=torch.tensor([own[s] + 1 for s in order]),
        trunk_used=torch.tensor([used[s] for s in order]),
        segments=[],
    )
    assert batch.gather == (slots == 12)
    out, _ = session_attention(LAYER, query, key, value, None, slot_batch=batch)
    for row, slot in enumerate(order):
        keys, values = (
            torch.cat([copy, new[0, :, row : row + 1]], 1)
            for copy, new in zip(filled.copies[slot], (key, value), strict=True)
        )
        torch.testing.assert_close(out[0, row], reference(query[0, :, row], keys, values), atol=1e-5, rtol=1e-5)


def test_prefill_is_causal_behind_what_is_stored() -> None:
    filled = Filled(2, [3, 9], [20, 11])
    query, key, value = (
        torch.randn(1, HEADS, 6, DIM),
        torch.randn(1, KV_HEADS, 6, DIM),
        torch.randn(1, KV_HEADS, 6, DIM),
    )
    none = torch.zeros(0, dtype=torch.long)
    segments = [Segment(1, 0, 4, 9, 11), Segment(0, 4, 2, 3, 20)]
    batch = SlotBatch(filled.store, none, none, none, segments)
    out, _ = session_attention(LAYER, query, key, value, None, slot_batch=batch)
    for slot, start, length in ((1, 0, 4), (0, 4, 2)):
        for n in range(length):
            keys, values = (
                torch.cat([copy, new[0, :, start : start + n + 1]], 1)
                for copy, new in zip(filled.copies[slot], (key, value), strict=True)
            )
            want = reference(query[0, :, start + n], keys, values)
            torch.testing.assert_close(out[0, start + n], want, atol=1e-5, rtol=1e-5)


def test_growing_keeps_what_is_stored() -> None:
    store = SlotStore(2)
    first, second = torch.randn(KV_HEADS, 3, DIM), torch.randn(KV_HEADS, 200, DIM)
    store.write(0, 1, 0, first, first)
    store.write(0, 0, 0, second, second)
    assert torch.equal(store.own(0)[0][1, :, :3], first)
    assert torch.equal(store.own(0)[1][0, :, :200], second)
    assert bool(torch.isfinite(store.own(0)[0]).all())


def test_copying_takes_the_first_tokens_of_every_layer() -> None:
    store = SlotStore(3)
    for layer in range(2):
        filling = torch.randn(KV_HEADS, 10, DIM)
        store.write(layer, 0, 0, filling, -filling)
    store.copy_own(0, 2, 6)
    for layer in range(2):
        keys, values = store.own(layer)
        assert torch.equal(keys[2, :, :6], keys[0, :, :6]) and torch.equal(values[2, :, :6], values[0, :, :6])
        assert not keys[2, :, 6:].any()

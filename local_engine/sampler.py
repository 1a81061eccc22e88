"""Continuous-batching sampler: exact log-probabilities of the sampled tokens, KV cache kept between turns."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false
# PyTorch has no complete types.

import math
import random
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from local_engine.kv_cache import Segment, SlotBatch, SlotStore
from local_engine.packed_linear import pack_linears, packing_helps

BLOCK = 256  # vocabulary entries summed together before a token is looked up
STOP_WINDOW = 256  # last tokens in which a stop text is looked for
COLDEST = 1e-6  # temperature; logits divided by a smaller one can leave the range of float32
SHORTEST_TRUNK = 16  # tokens; a shorter common prefix is not worth a shared copy

PauseMode = Literal["in_place", "retract"]
"""What a turn in progress does when the weights change: it goes on with the keys and values that it has, or all its
tokens are computed again with the new weights. What it has sampled stays in both."""


@dataclass(frozen=True)
class SamplingParams:
    """temperature 0 is greedy; stop texts and patterns are kept in the output, as with `no_stop_trim`."""

    temperature: float
    max_new_tokens: int
    stop: tuple[str, ...] = ()
    stop_regex: tuple[str, ...] = ()


@dataclass
class Generation:
    """One turn of one session. `log_probs` are those of the distribution sampled from (temperature applied).

    `version` is that of the weights of its first token; later ones may come from newer weights.
    """

    session: str
    tokens: list[int]
    params: SamplingParams
    stream: random.Random
    ids: list[int] = field(default_factory=list[int])
    log_probs: list[float] = field(default_factory=list[float])
    finish_reason: str = ""  # "stop" or "length" when done
    version: int = 0

    @property
    def context(self) -> list[int]:
        """What the next token depends on: the prompt and what was sampled so far."""
        return self.tokens + self.ids


@dataclass
class _Slot:
    tokens: list[int] = field(default_factory=list[int])  # whose keys and values are stored, trunk part included
    trunk_used: int = 0
    session: str | None = None
    last_use: int = 0
    outdated: bool = False  # made with older weights: of use to the turn that decodes in it, and to no other

    @property
    def own(self) -> int:
        return len(self.tokens) - self.trunk_used


class Sampler:
    """Not thread-safe: `add`, `step`, `close` and `load_weights` are called from one thread at a time."""

    def __init__(
        self, model: Any, tokenizer: Any, *, slots: int, end_tokens: Iterable[int], device: torch.device
    ) -> None:
        self._model = model.eval()
        self._packed = pack_linears(model) if packing_helps(device, model.dtype) else []
        self._decode: Callable[[list[int]], str] = tokenizer.decode
        self._end = frozenset(end_tokens)
        self._device = device
        self._store = SlotStore(slots)
        self._slots = [_Slot() for _ in range(slots)]
        self._trunk: list[int] = []
        self._trunk_outdated = False
        self._waiting: list[Generation] = []
        self._decoding: list[tuple[int, Generation]] = []
        self._clock = 0
        self.version = 0
        self.tokens_sampled = 0
        self.tokens_computed = 0

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._decoding)

    def add(self, generation: Generation) -> None:
        """Queue a turn; an earlier turn of the same session must be finished."""
        self._waiting.append(generation)

    def cancel(self, generation: Generation) -> None:
        """Forget a turn that nobody waits for any more."""
        self._waiting = [g for g in self._waiting if g is not generation]
        self._decoding = [(s, g) for s, g in self._decoding if g is not generation]

    def close(self, session: str) -> None:
        """The session has ended: its slot is free, its tokens may still serve as another one's prefix."""
        for slot in self._slots:
            if slot.session == session:
                slot.session = None

    def load_weights(
        self, weights: Iterable[tuple[str, Tensor]], version: int, running: PauseMode | None = None
    ) -> None:
        """Copy named weights into the sampling model and forget the keys and values made with the old ones.

        `running` says what turns in progress do, between two of their tokens. Raises RuntimeError where there are some
        and it is None.
        """
        if self.busy and running is None:
            raise RuntimeError("weights cannot change while turns are being sampled")
        own = dict(self._model.named_parameters())
        with torch.no_grad():
            for name, weight in weights:
                own[name].copy_(weight)
        for layer in self._packed:
            layer.pack()
        self.version = version
        if running == "in_place" and self._decoding:
            self._keep_only_running()
            return
        self._waiting = [g for _, g in self._decoding] + self._waiting
        self._decoding = []
        self._forget()

    def _keep_only_running(self) -> None:
        decoding = {index for index, _ in self._decoding}
        for index, slot in enumerate(self._slots):
            slot.outdated = index in decoding
            if not slot.outdated:
                slot.tokens, slot.trunk_used = [], 0
        self._trunk_outdated = True

    def _forget(self) -> None:
        self._store.clear()
        self._trunk = []
        self._trunk_outdated = False
        for slot in self._slots:
            slot.tokens, slot.trunk_used, slot.outdated = [], 0, False

    @torch.inference_mode()
    def step(self) -> list[Generation]:
        """One forward pass over all turns that can advance by a token; the turns that ended with it."""
        self._clock += 1
        rows = list(self._decoding)
        for index, generation in rows:
            self._slots[index].tokens.append(generation.ids[-1])
        in_use = rows or any(s.session and not s.outdated for s in self._slots if s.tokens)
        planted = not in_use and self._plant_trunk()
        admitted = self._admit()
        if not rows and not admitted:
            return []
        # A turn of which one token is missing, as for most of a group, is a decoding row like any other.
        rows += [(index, g) for index, g, held in admitted if held == len(g.context) - 1]
        longer = [(index, g, held) for index, g, held in admitted if held < len(g.context) - 1]
        batch, flat, positions, lasts = self._lay_out([index for index, _ in rows], longer, planted)
        self.tokens_computed += len(flat)
        logits = self._model(
            input_ids=torch.tensor([flat], device=self._device),
            position_ids=torch.tensor([positions], device=self._device),
            use_cache=False,
            logits_to_keep=torch.tensor(lasts, dtype=torch.long, device=self._device),
            slot_batch=batch,
        ).logits[0]
        return self._take([*rows, *((index, g) for index, g, _ in longer)], logits)

    def _lay_out(
        self, rows: list[int], longer: list[tuple[int, Generation, int]], planted: bool
    ) -> tuple[SlotBatch, list[int], list[int], list[int]]:
        """The forward pass as one flat row - single tokens, trunk if new, segments - and whose logits are needed."""
        slots = [self._slots[index] for index in rows]
        flat, positions = [s.tokens[-1] for s in slots], [len(s.tokens) - 1 for s in slots]
        lasts, segments = list(range(len(rows))), list[Segment]()
        if planted:
            segments.append(Segment(None, len(flat), len(self._trunk), own_before=0, trunk_used=0))
            flat += self._trunk
            positions += range(len(self._trunk))
        for index, generation, held in longer:
            new, trunk = generation.context[held:], self._slots[index].trunk_used
            segments.append(Segment(index, len(flat), len(new), own_before=held - trunk, trunk_used=trunk))
            flat += new
            positions += range(held, held + len(new))
            lasts.append(len(flat) - 1)
        batch = SlotBatch(
            store=self._store,
            slots=torch.tensor(rows, dtype=torch.long, device=self._device),
            own_lengths=torch.tensor([s.own for s in slots], dtype=torch.long, device=self._device),
            trunk_used=torch.tensor([s.trunk_used for s in slots], dtype=torch.long),
            segments=segments,
        )
        return batch, flat, positions, lasts

    def _plant_trunk(self) -> bool:
        """With nothing stored that is in use: what all waiting turns begin with becomes the new trunk."""
        if not self._waiting:
            return False
        first = self._waiting[0].context
        shared = min(_common(first, g.context) for g in self._waiting)
        shared = min(shared, min(len(g.context) for g in self._waiting) - 1)
        if self._trunk and not self._trunk_outdated and _common(self._trunk, first) == len(self._trunk) >= shared // 2:
            return False
        self._forget()
        if shared < SHORTEST_TRUNK:
            return False
        self._trunk = first[:shared]
        self._store.trunk_length = shared
        return True

    def _admit(self) -> list[tuple[int, Generation, int]]:
        """Bring waiting turns in: slot, turn, and how many of its tokens the slot holds already.

        One that shares more with another new turn than with any slot waits a step for it.
        """
        admitted: list[tuple[int, Generation, int]] = []
        put_off: list[Generation] = []
        for generation in self._waiting:
            tokens = generation.context
            limit = len(tokens) - 1  # the last token is always computed: its logits are needed
            trunk = 0 if self._trunk_outdated else min(_common(self._trunk, tokens), limit)
            source, held = self._best_source(generation.session, tokens, trunk, limit)
            companion = max((_common(g.context, tokens) for _, g, _ in admitted), default=0)
            index = None
            if min(companion, limit) < held + SHORTEST_TRUNK // 2:
                index = self._claim(generation.session, source)
            if index is None:
                put_off.append(generation)
                continue
            slot = self._slots[index]
            if source is not None and source != index:
                self._store.copy_own(source, index, held - trunk)
            slot.session, slot.last_use, slot.trunk_used = generation.session, self._clock, trunk
            slot.tokens, slot.outdated = tokens, False
            admitted.append((index, generation, held))
        self._waiting = put_off
        return admitted

    def _best_source(self, session: str, tokens: list[int], trunk: int, limit: int) -> tuple[int | None, int]:
        """The slot whose stored tokens agree longest with `tokens`, and how far (at least the trunk)."""
        decoding = {index for index, _ in self._decoding}
        best, held = None, trunk
        for index, slot in enumerate(self._slots):
            admitted_now = slot.last_use == self._clock
            if admitted_now or slot.outdated or slot.trunk_used != trunk:
                continue
            # The newest token of a slot that decodes gets its keys and values in this very step.
            stored = len(slot.tokens) - (index in decoding)
            agree = min(_common(slot.tokens, tokens), limit, stored)
            if agree > held or (agree == held and agree > trunk and slot.session == session):
                best, held = index, agree
        return best, held

    def _claim(self, session: str, source: int | None) -> int | None:
        """The session's own slot, else a free one, else that of the session idle for longest; None if all decode."""
        free: list[int] = []
        idle: list[int] = []
        decoding = {i for i, _ in self._decoding}
        for index, slot in enumerate(self._slots):
            if slot.session == session:
                return index
            if index in decoding or slot.last_use == self._clock:
                continue
            (idle if slot.session else free).append(index)
        for candidates in (free, idle):
            if candidates:
                # The source of a copy is given away last: others of the group may need it too.
                return min(candidates, key=lambda i: (i == source, self._slots[i].last_use))
        return None

    def _take(self, rows: list[tuple[int, Generation]], logits: Tensor) -> list[Generation]:
        ids, log_probs = sample(
            logits,
            [g.params.temperature for _, g in rows],
            [g.stream.random() if g.params.temperature > 0 else 0.0 for _, g in rows],
        )
        self.tokens_sampled += len(rows)
        finished: list[Generation] = []
        self._decoding = []
        for (index, generation), token, log_prob in zip(rows, ids, log_probs, strict=True):
            if not generation.ids:
                generation.version = self.version
            generation.ids.append(token)
            generation.log_probs.append(log_prob)
            self._slots[index].last_use = self._clock
            if token in self._end or self._stopped(generation):
                generation.finish_reason = "stop"
            elif len(generation.ids) >= generation.params.max_new_tokens:
                generation.finish_reason = "length"
            if generation.finish_reason:
                finished.append(generation)
            else:
                self._decoding.append((index, generation))
        return finished

    def _stopped(self, generation: Generation) -> bool:
        params = generation.params
        if not (params.stop or params.stop_regex):
            return False
        text = self._decode(generation.ids[-STOP_WINDOW:])
        return any(s in text for s in params.stop) or any(re.search(p, text) for p in params.stop_regex)


def sample(logits: Tensor, temperatures: list[float], uniforms: list[float]) -> tuple[list[int], list[float]]:
    """Draw one token for each row by inverse transform sampling.

    logits (rows, vocabulary); one temperature and one number in [0, 1) for each row. The log-probability is that of
    softmax(logits / temperature), for temperature 0 that of softmax(logits). Blocks of the vocabulary are summed
    first, so that only one block needs a running sum.

    Raises FloatingPointError for logits that are not finite.
    """
    device, rows, vocabulary = logits.device, logits.shape[0], logits.shape[1]
    heat = torch.tensor(temperatures, dtype=torch.float32)
    greedy = heat <= 0
    scaled = logits.float() / torch.where(greedy, 1.0, heat.clamp(min=COLDEST)).to(device)[:, None]
    normalizer = torch.logsumexp(scaled, -1)
    if bool(greedy.all()):
        picked = scaled.argmax(-1)
    else:
        probabilities = torch.exp(scaled - normalizer[:, None])
        padded = torch.nn.functional.pad(probabilities, (0, -vocabulary % BLOCK)).view(rows, -1, BLOCK)
        sums = padded.sum(-1)
        running = sums.cumsum(-1)
        total = running[:, -1:]
        # A number just below 1 rounds to 1; at the total itself the search would end in a block without any mass.
        target = torch.tensor(uniforms, dtype=torch.float32, device=device)[:, None] * total
        target = torch.minimum(target, torch.nextafter(total, torch.zeros_like(total)))
        block = torch.searchsorted(running, target, right=True).clamp_(max=running.shape[1] - 1)
        inside = padded.gather(1, block[:, :, None].expand(-1, -1, BLOCK))[:, 0]
        rest = target - (running.gather(1, block) - sums.gather(1, block))
        offset = torch.searchsorted(inside.cumsum(-1), rest, right=True).clamp_(max=BLOCK - 1)
        # Rounding can point behind the last token of a block that has any mass.
        offset = torch.where(inside.gather(1, offset) > 0, offset, inside.argmax(-1, keepdim=True))
        picked = (block * BLOCK + offset)[:, 0]
        if bool(greedy.any()):
            picked = torch.where(greedy.to(device), scaled.argmax(-1), picked)
    log_probs: list[float] = (scaled.gather(1, picked[:, None])[:, 0] - normalizer).tolist()
    if not all(map(math.isfinite, log_probs)):
        raise FloatingPointError("the model's logits are not finite: training has diverged; lower --lr")
    return picked.tolist(), log_probs


def _common(a: list[int], b: list[int]) -> int:
    """Length of the common prefix."""
    n = min(len(a), len(b))
    if a[:n] == b[:n]:
        return n
    low, high = 0, n
    while low < high:
        middle = (low + high + 1) // 2
        if a[:middle] == b[:middle]:
            low = middle
        else:
            high = middle - 1
    return low

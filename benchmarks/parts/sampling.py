"""Tokens per second of the local engine's sampler and of `generate`: same prompts, same number of tokens, same type."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

import torch

from benchmarks.parts.samples import TEMPERATURE, Workload, sample_turns
from benchmarks.parts.timing import seconds
from local_engine.pretrained import load_causal_lm
from local_engine.sampler import SamplingParams


@dataclass(frozen=True)
class Row:
    """Medians over the repeats; prompts are computed anew each time on both sides."""

    batch: int
    prompt_tokens: int
    ours_tokens_per_second: float
    generate_tokens_per_second: float
    ours_seconds: list[float]
    generate_seconds: list[float]

    @property
    def ratio(self) -> float:
        return self.ours_tokens_per_second / self.generate_tokens_per_second


def compare(workload: Workload, batch: int, new_tokens: int, repeats: int) -> Row:
    """Sample `new_tokens` for each of `batch` prompts; nothing ends early on either side."""
    prompts = workload.prompts(batch)
    sampler = workload.sampler(batch, end_tokens=())
    plain = load_causal_lm(workload.folder, dtype=workload.dtype, attention="sdpa", device=workload.device).eval()
    longest = max(map(len, prompts))
    pad = workload.tokenizer.pad_token_id or workload.tokenizer.eos_token_id
    ids = torch.full((batch, longest), pad, device=workload.device)
    mask = torch.zeros((batch, longest), dtype=torch.long, device=workload.device)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = torch.tensor(prompt, device=workload.device)
        mask[row, longest - len(prompt) :] = 1

    def ours(repeat: int) -> None:
        sampler.load_weights([], version=repeat)  # forgets the keys and values of the prompts
        turns = sample_turns(sampler, prompts, SamplingParams(TEMPERATURE, new_tokens), seed=repeat)
        assert all(len(turn.ids) == new_tokens for turn in turns)

    @torch.inference_mode()
    def generate() -> None:
        out = plain.generate(
            input_ids=ids,
            attention_mask=mask,
            do_sample=True,
            temperature=TEMPERATURE,
            top_k=0,
            top_p=1.0,
            max_new_tokens=new_tokens,
            min_new_tokens=new_tokens,
            pad_token_id=pad,
        )
        assert out.shape == (batch, longest + new_tokens)

    our_times: list[float] = []
    their_times: list[float] = []
    for repeat in range(repeats + 1):
        our_time, their_time = seconds(lambda r=repeat: ours(r), workload.device), seconds(generate, workload.device)
        if repeat:
            our_times.append(our_time)
            their_times.append(their_time)
    tokens = batch * new_tokens
    return Row(
        batch=batch,
        prompt_tokens=longest,
        ours_tokens_per_second=tokens / median(our_times),
        generate_tokens_per_second=tokens / median(their_times),
        ours_seconds=our_times,
        generate_seconds=their_times,
    )

"""What both sides work on: prompts of the shell agent, and trajectories with masks and advantages."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from harbor_service.shell_prompt import CLOSED_BLOCK, EXAMPLE_TURNS, SYSTEM_PROMPT, user_turn
from local_engine import kv_cache
from local_engine.grpo import TrainSample, group_advantages
from local_engine.policy import Trajectory
from local_engine.pretrained import load_causal_lm
from local_engine.sampler import Generation, Sampler, SamplingParams
from tasks.families import EASY, make

SAMPLES_PER_PROMPT = 8
TEMPERATURE = 0.7


@dataclass
class Workload:
    """The model and where it runs."""

    folder: str
    tokenizer: Any
    dtype: torch.dtype
    device: torch.device

    def prompt(self, number: int) -> list[int]:
        """Token ids of the shell agent's first request for the `number`-th task."""
        text = make(EASY[number % len(EASY)], "train", number).instruction
        messages = [{"role": "system", "content": SYSTEM_PROMPT}, *EXAMPLE_TURNS, user_turn(text)]
        rendered = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        return self.tokenizer.encode(rendered, add_special_tokens=False)

    def prompts(self, batch: int) -> list[list[int]]:
        """`batch` prompts, every one for SAMPLES_PER_PROMPT sequences in a row."""
        return [self.prompt(index // SAMPLES_PER_PROMPT) for index in range(batch)]

    def sampler(self, slots: int, end_tokens: tuple[int, ...]) -> Sampler:
        model = load_causal_lm(self.folder, dtype=self.dtype, attention=kv_cache.ATTENTION, device=self.device)
        return Sampler(model, self.tokenizer, slots=slots, end_tokens=end_tokens, device=self.device)


def sample_turns(sampler: Sampler, prompts: list[list[int]], params: SamplingParams, seed: int) -> list[Generation]:
    """One turn for each prompt, in the order of the prompts."""
    turns = [
        Generation(f"{seed}-{index}", prompt, params, random.Random(seed * 1000 + index))
        for index, prompt in enumerate(prompts)
    ]
    for turn in turns:
        sampler.add(turn)
    while sampler.busy:
        sampler.step()
    for turn in turns:
        sampler.close(turn.session)
    return turns


def made_samples(workload: Workload, prompts: int) -> list[list[TrainSample]]:
    """`prompts` groups sampled by the model itself, ended at the closing fence; half of each group gets reward 1."""
    sampler = workload.sampler(SAMPLES_PER_PROMPT * prompts, (workload.tokenizer.eos_token_id,))
    params = SamplingParams(TEMPERATURE, 48, stop_regex=(CLOSED_BLOCK,))
    turns = sample_turns(sampler, workload.prompts(SAMPLES_PER_PROMPT * prompts), params, seed=1)
    groups: list[list[TrainSample]] = []
    for start in range(0, len(turns), SAMPLES_PER_PROMPT):
        advantages = group_advantages([float(index % 2) for index in range(SAMPLES_PER_PROMPT)])
        assert advantages is not None
        groups.append(
            [
                TrainSample(Trajectory(turn.tokens + turn.ids, [1] * len(turn.ids)), advantage, turn.log_probs)
                for turn, advantage in zip(turns[start : start + SAMPLES_PER_PROMPT], advantages, strict=True)
            ]
        )
    return groups


def read_samples(path: Path) -> list[list[TrainSample]]:
    """The trajectories of a train dump. Those with one prompt are taken for one group, which only orders them."""
    data = torch.load(path, weights_only=True, map_location="cpu")["rollout_data"]
    groups: dict[tuple[int, ...], list[TrainSample]] = {}
    for tokens, mask, advantages, log_probs in zip(
        data["tokens"], data["loss_masks"], data["advantages"], data["rollout_log_probs"], strict=True
    ):
        trained = mask.bool()
        if not bool(trained.any()):
            continue
        sample = TrainSample(
            Trajectory(tokens.tolist(), mask.tolist()), float(advantages[trained][0]), log_probs[trained].tolist()
        )
        prompt = tuple(sample.trajectory.tokens[: sample.trajectory.prompt_length])
        groups.setdefault(prompt, []).append(sample)
    return list(groups.values())

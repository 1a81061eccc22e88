"""Seconds per optimizer step of the local engine and of TRL's GRPOTrainer on the same trajectories.

Tokens, masks, advantages and adapter are the same. TRL generates nothing here: the step of its trainer that samples
and scores answers with the given trajectories. It runs without gradient checkpointing (its default, slower), without a
KL term, with the loss that averages over samples, and starts from the same adapter weights, so that the two first
gradients can be compared.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import tempfile
import time
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import TrainerCallback

from benchmarks.parts.samples import Workload
from benchmarks.parts.timing import seconds
from local_engine.grpo import GrpoSettings, GrpoTrainer, TrainSample
from local_engine.policy import LoraSettings, Policy
from local_engine.pretrained import load_causal_lm


@dataclass(frozen=True)
class TrlVariant:
    micro_batch: int
    seconds: float
    grad_norm: float
    all_seconds: list[float]


@dataclass(frozen=True)
class Result:
    """Medians over the repeats; gradient norms are those of the first step, before clipping."""

    trajectories: int
    tokens: int
    trained_tokens: int
    ours_seconds: float
    ours_grad_norm: float
    ours_all_seconds: list[float]
    trl_version: str | None
    trl: list[TrlVariant] = field(default_factory=list[TrlVariant])


def compare(
    workload: Workload,
    groups: list[list[TrainSample]],
    lora: LoraSettings,
    settings: GrpoSettings,
    micro_batches: tuple[int, ...],
    repeats: int,
) -> Result:
    samples = [sample for group in groups for sample in group]
    policy = Policy(workload.folder, lora=lora, dtype=workload.dtype, device=workload.device)
    start = policy.state()
    ours = _Ours(policy, settings, groups, workload.device)
    ours.step()
    grad_norm = ours.grad_norm
    version = importlib.import_module("trl").__version__ if importlib.util.find_spec("trl") else None
    times: list[float] = []
    variants: list[TrlVariant] = []
    if version is None:
        times = [ours.step() for _ in range(repeats)]
    for micro_batch in micro_batches if version else ():
        if len(samples) % micro_batch:
            raise SystemExit(f"--trl-micro-batches {micro_batch} does not divide the {len(samples)} trajectories")
        trl_times, trl_norm = _trl(workload, samples, lora, settings, start, micro_batch, repeats, between=ours)
        variants.append(TrlVariant(micro_batch, median(trl_times), trl_norm, trl_times))
        times += ours.take()
    return Result(
        trajectories=len(samples),
        tokens=sum(len(sample.trajectory.tokens) for sample in samples),
        trained_tokens=sum(sum(sample.trajectory.loss_mask) for sample in samples),
        ours_seconds=median(times),
        ours_grad_norm=grad_norm,
        ours_all_seconds=times,
        trl_version=version,
        trl=variants,
    )


class _Ours:
    def __init__(
        self, policy: Policy, settings: GrpoSettings, groups: list[list[TrainSample]], device: torch.device
    ) -> None:
        self._policy, self._device, self._groups = policy, device, groups
        self._trainer = GrpoTrainer(policy, settings)
        self._taken: list[float] = []
        self.grad_norm = 0.0

    def step(self) -> float:
        for group in self._groups:
            for sample in group:
                sample.log_probs = None
        return seconds(self._train, self._device)

    def _train(self) -> None:
        self.grad_norm = self._trainer.train(self._groups).grad_norm

    def step_in_turn(self) -> None:
        self._taken.append(self.step())

    def take(self) -> list[float]:
        taken, self._taken = self._taken, []
        return taken


class _StepTimes(TrainerCallback):
    """Times every optimizer step of TRL, and lets the other side take its turn between two of them."""

    def __init__(self, between: _Ours, device: torch.device) -> None:
        self._between, self._device = between, device
        self._started = 0.0
        self.seconds: list[float] = []

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize()
        self._started = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize()
        self.seconds.append(time.perf_counter() - self._started)
        if len(self.seconds) > 1:
            self._between.step_in_turn()


def _trl(
    workload: Workload,
    samples: list[TrainSample],
    lora: LoraSettings,
    settings: GrpoSettings,
    start: dict[str, torch.Tensor],
    micro_batch: int,
    repeats: int,
    between: _Ours,
) -> tuple[list[float], float]:
    """Times of `repeats` steps after a first one, and the gradient norm of the first."""
    trl: Any = importlib.import_module("trl")
    datasets: Any = importlib.import_module("datasets")
    from peft import LoraConfig

    with tempfile.TemporaryDirectory() as folder:
        config = trl.GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=micro_batch,
            gradient_accumulation_steps=len(samples) // micro_batch,
            num_generations=micro_batch,
            max_steps=repeats + 1,
            learning_rate=settings.lr,
            lr_scheduler_type="constant",
            warmup_steps=0,
            weight_decay=settings.weight_decay,
            adam_beta1=0.9,
            adam_beta2=0.99,
            max_grad_norm=settings.max_grad_norm,
            beta=settings.kl_loss_coef,
            epsilon=settings.eps_clip,
            epsilon_high=settings.eps_clip_high,
            temperature=settings.temperature,
            loss_type="grpo",
            gradient_checkpointing=False,
            bf16=workload.dtype == torch.bfloat16,
            use_cpu=workload.device.type == "cpu",
            save_strategy="no",
            report_to="none",
            logging_steps=1,
            disable_tqdm=True,
            dataloader_pin_memory=False,
        )
        times = _StepTimes(between, workload.device)
        trainer = trl.GRPOTrainer(
            model=load_causal_lm(workload.folder, dtype=workload.dtype, attention="sdpa", device=workload.device),
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=config,
            train_dataset=datasets.Dataset.from_dict({"prompt": ["unused"] * len(samples)}),
            processing_class=workload.tokenizer,
            peft_config=LoraConfig(
                r=lora.rank,
                lora_alpha=lora.alpha,
                lora_dropout=lora.dropout,
                target_modules="all-linear",
                task_type="CAUSAL_LM",
            ),
            callbacks=[times],
        )
        own = dict(trainer.model.named_parameters())
        with torch.no_grad():
            for name, value in start.items():
                own[name].copy_(value)
        batch = _padded(samples, workload.tokenizer.pad_token_id or workload.tokenizer.eos_token_id, workload.device)
        trainer._generate_and_score_completions = lambda _: dict(batch)
        trainer.log = lambda logs, *_, **__: trainer.state.log_history.append(dict(logs))
        trainer.train()
        norms = [float(entry["grad_norm"]) for entry in trainer.state.log_history if "grad_norm" in entry]
    gc.collect()
    return times.seconds[1:], norms[0]


def _padded(samples: list[TrainSample], pad: int, device: torch.device) -> dict[str, torch.Tensor]:
    """The batch that TRL's trainer expects of its sampling step: prompts padded left, completions right."""
    prompts = [torch.tensor(s.trajectory.tokens[: s.trajectory.prompt_length]) for s in samples]
    completions = [torch.tensor(s.trajectory.tokens[s.trajectory.prompt_length :]) for s in samples]

    def stack(rows: list[torch.Tensor], filler: int, side: str) -> torch.Tensor:
        return pad_sequence(rows, batch_first=True, padding_value=filler, padding_side=side).to(device)

    masks = [torch.tensor(s.trajectory.loss_mask) for s in samples]
    return {
        "prompt_ids": stack(prompts, pad, "left"),
        "prompt_mask": stack([torch.ones_like(p) for p in prompts], 0, "left"),
        "completion_ids": stack(completions, pad, "right"),
        "completion_mask": stack([torch.ones_like(c) for c in completions], 0, "right"),
        "tool_mask": stack(masks, 0, "right"),
        "advantages": torch.tensor([s.advantage for s in samples], device=device),
        "num_items_in_batch": torch.tensor(float(sum(int(m.sum()) for m in masks)), device=device),
    }

"""The parts of the local engine wired together: policy, trainer, sampler, sessions and their HTTP server."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false
# Transformers has no complete types.

import asyncio
import uuid
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, Self

import torch

from local_engine import kv_cache
from local_engine.batcher import Batcher
from local_engine.config import LocalRunConfig
from local_engine.grpo import GrpoSettings, GrpoTrainer
from local_engine.importance import Truncation
from local_engine.machine import Machine, MachineError
from local_engine.policy import LoraSettings, Policy
from local_engine.pretrained import CheckpointNotUsable, checkpoint_folder, load_causal_lm, load_tokenizer
from local_engine.sampler import Sampler
from local_engine.session import ChatTokenizer, Sessions
from local_engine.session_server import SessionServer, make_app


class Engine:
    """Used as `async with`. Tensor work runs on one thread, or on one for sampling and one for training."""

    def __init__(self, config: LocalRunConfig, machine: Machine) -> None:
        self.config = config
        self.machine = machine
        self.instance_id = uuid.uuid4().hex
        self._sampling = ThreadPoolExecutor(1, thread_name_prefix="tensors")
        self._training = self._sampling
        if config.asynchrony is not None:
            self._training = ThreadPoolExecutor(1, thread_name_prefix="training")
        folder = checkpoint_folder(config.hf_checkpoint)
        self.tokenizer = load_tokenizer(folder)
        torch.manual_seed(config.seed)
        lora = None
        if not config.full_finetune:
            lora = LoraSettings(config.lora_rank, config.lora_alpha, config.lora_dropout, config.target_modules)
        self.policy = Policy(folder, lora=lora, dtype=machine.dtype, device=machine.device)
        room = getattr(self.policy.model.config, "max_position_embeddings", None)
        if room and config.max_seq_len > room:
            raise CheckpointNotUsable(
                f"--max-seq-len {config.max_seq_len} is more than the {room} positions of the model in {folder}"
            )
        self.trainer = GrpoTrainer(self.policy, grpo_settings(config))
        sampling_model = load_causal_lm(
            folder, dtype=machine.dtype, attention=kv_cache.ATTENTION, device=machine.device
        )
        self.sampler = Sampler(
            sampling_model,
            self.tokenizer,
            slots=config.max_concurrent,
            end_tokens=_end_tokens(sampling_model, self.tokenizer),
            device=machine.device,
        )
        self.batcher = Batcher(self.sampler, self._sampling, lock_step=config.deterministic)
        self.sessions = Sessions(
            self.batcher,
            ChatTokenizer(self.tokenizer),
            max_seq_len=config.max_seq_len,
            default_max_new_tokens=config.rollout_max_response_len,
        )
        self.server = _serve(self.sessions, config, self.instance_id)

    async def __aenter__(self) -> Self:
        self.batcher.start()
        await self.server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        # First the turns, or the server would wait for their answers.
        await self.batcher.stop()
        await self.server.stop()
        self._training.shutdown(wait=True)
        self._sampling.shutdown(wait=True)

    async def train[T](self, work: Callable[[], T]) -> T:
        """Run work on the policy on the training thread; sampling goes on beside it where that is another thread."""
        return await self._compute(self._training, work, self.machine.training_threads)

    async def _compute[T](self, executor: Executor, work: Callable[[], T], threads: int) -> T:
        """Cancelled, it still waits for the work to end: half an optimizer step is no state to save."""

        def call() -> T:
            torch.set_num_threads(threads)
            return work()

        future = asyncio.get_running_loop().run_in_executor(executor, call)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait([future])
            raise

    async def publish_weights(self, version: int) -> None:
        """Give the sampler the policy's current weights, between two of its tokens; nothing may train meanwhile."""
        running = self.config.asynchrony.pause_generation_mode if self.config.asynchrony is not None else None
        await self._compute(
            self._sampling,
            lambda: self.sampler.load_weights(self.policy.merged_weights(), version, running),
            self.machine.training_threads,
        )
        await self._compute(self._sampling, lambda: None, self.machine.sampling_threads)


def _serve(sessions: Sessions, config: LocalRunConfig, instance_id: str) -> SessionServer:
    app = make_app(
        sessions,
        default_temperature=config.temperature,
        model_name=config.agent_model_name,
        instance_id=instance_id,
    )
    address = config.session_address
    try:
        return SessionServer(app, address.bind, address.port, address.host)
    except OSError as error:
        raise MachineError(
            f"the session server cannot listen on {address.bind}:{address.port} ({error.strerror}); free the port, or "
            "rehearse a plan with another --session-server-port or --miles-host-ip"
        ) from error


def grpo_settings(config: LocalRunConfig) -> GrpoSettings:
    """The trainer's share of a run's configuration."""
    return GrpoSettings(
        lr=config.lr,
        warmup_steps=config.warmup_steps,
        eps_clip=config.eps_clip,
        eps_clip_high=config.eps_clip_high,
        kl_loss_coef=config.kl_loss_coef,
        weight_decay=config.weight_decay,
        max_grad_norm=config.max_grad_norm,
        temperature=config.temperature,
        truncation=_truncation(config),
    )


def _truncation(config: LocalRunConfig) -> Truncation | None:
    if config.asynchrony is None or config.asynchrony.tis_clip is None:
        return None
    return Truncation(config.asynchrony.tis_clip_low, config.asynchrony.tis_clip)


def _end_tokens(model: Any, tokenizer: Any) -> set[int]:
    ends: Any = getattr(model.generation_config, "eos_token_id", None)
    listed = set(ends) if isinstance(ends, list) else {ends}
    return {int(token) for token in [*listed, tokenizer.eos_token_id] if token is not None}

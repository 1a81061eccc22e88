"""The model that is trained: a causal LM with a LoRA adapter, or with all its weights."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false
# PEFT and Transformers have no complete types.

import warnings
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from local_engine import prefix_tree
from local_engine.config import ALL_LINEAR
from local_engine.pretrained import CheckpointNotUsable, load_causal_lm


@dataclass(frozen=True)
class LoraSettings:
    """rank, alpha and dropout of the adapter, and the names of the linear layers that get one (or all-linear)."""

    rank: int
    alpha: int
    dropout: float
    targets: tuple[str, ...] = (ALL_LINEAR,)


@dataclass(frozen=True)
class Trajectory:
    """What the policy needs of a trajectory: ids, and a mask over ids[prompt_length:] of the tokens it wrote."""

    tokens: Sequence[int]
    loss_mask: Sequence[int]

    @property
    def prompt_length(self) -> int:
        return len(self.tokens) - len(self.loss_mask)


class Policy:
    """Log-probabilities with gradient, the merged weights for the sampler, and the adapter or model for disk."""

    def __init__(
        self,
        checkpoint: str,
        *,
        lora: LoraSettings | None,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        # Frozen weights are kept in the computing type; trained ones in fp32, as small updates vanish in bf16.
        self.checkpoint = checkpoint
        self.dtype = dtype
        self.device = device
        base_dtype = dtype if lora else torch.float32
        model = load_causal_lm(checkpoint, dtype=base_dtype, attention=prefix_tree.ATTENTION, device=device)
        self._plain = model
        self.adapted: tuple[str, ...] = ()  # targets that get an adapter
        self.not_there: tuple[str, ...] = ()  # targets that this model does not have
        self._lora = lora
        if lora is None:
            # A tied embedding trained with the head is a fifth of the work and unsteady.
            model.get_input_embeddings().requires_grad_(False)
            self.model = model
        else:
            from peft import LoraConfig, get_peft_model

            self.adapted, self.not_there = _adapted(model, lora.targets, checkpoint)
            # PEFT would adapt what it finds under the other names too: an embedding, or not at all but with an error.
            targets: Any = ALL_LINEAR if lora.targets == (ALL_LINEAR,) else list(self.adapted)
            settings = LoraConfig(
                r=lora.rank,
                lora_alpha=lora.alpha,
                lora_dropout=lora.dropout,
                target_modules=targets,
                task_type="CAUSAL_LM",
            )
            with warnings.catch_warnings():
                # PEFT asks Transformers for a property by the name it had before; nothing a user can change.
                warnings.simplefilter("ignore", FutureWarning)
                self.model = get_peft_model(model, settings)
        self.trainable: dict[str, torch.nn.Parameter] = {
            name: p for name, p in self.model.named_parameters() if p.requires_grad
        }

    @property
    def dropout(self) -> float:
        """Of the pass that is trained on."""
        return 0.0 if self._lora is None else self._lora.dropout

    def log_probs(
        self, sequences: Sequence[Trajectory], temperature: float, *, reference: bool = False, max_nodes: int = 0
    ) -> list[Tensor]:
        """For each sequence the log-probabilities (float32) of the tokens its mask selects, at the given temperature.

        Sequences are packed as one prefix tree. `reference` leaves the adapter out.
        """
        # Dropout belongs to the pass that is trained on, not to the log-probabilities it is compared with.
        self.model.train(torch.is_grad_enabled())
        tree = prefix_tree.pack([s.tokens for s in sequences])
        wanted = [[i for i, m in enumerate(s.loss_mask, start=s.prompt_length) if m and i > 0] for s in sequences]
        before = [tree.where[n][i - 1] for n, chosen in enumerate(wanted) for i in chosen]
        nodes, which = torch.unique(torch.tensor(before, dtype=torch.long), return_inverse=True)
        targets = torch.tensor([sequences[n].tokens[i] for n, chosen in enumerate(wanted) for i in chosen])
        with self._adapter_off() if reference else nullcontext(), self._autocast():
            logits = self.model(
                input_ids=torch.tensor([tree.ids], device=self.device),
                position_ids=torch.tensor([tree.positions], device=self.device),
                use_cache=False,
                logits_to_keep=nodes.to(self.device),
                tree=tree,
            ).logits[0]
        distribution = torch.log_softmax(logits.float() / (temperature or 1.0), -1)
        flat = distribution[which.to(self.device), targets.to(self.device)]
        return list(flat.split([len(chosen) for chosen in wanted]))

    def _autocast(self) -> Any:
        return torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32)

    def _adapter_off(self) -> Any:
        if self._lora is None:
            raise ValueError("a KL term needs the reference model: use LoRA, whose base model is the reference")
        return self.model.disable_adapter()

    @torch.no_grad()
    def merged_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Every parameter that training changes, with the adapter added in, under the plain model's name.

        The policy's own weights are left alone: merging in place and back would add rounding errors at every step.
        """
        if self._lora is None:
            for name, parameter in self.trainable.items():
                yield name, parameter.detach()
            return
        from peft.tuners.lora import LoraLayer

        prefix = "base_model.model."
        for name, module in self.model.named_modules():
            if isinstance(module, LoraLayer):
                layer: Any = module
                delta = layer.get_delta_weight(layer.active_adapters[0])
                yield f"{str(name).removeprefix(prefix)}.weight", layer.get_base_layer().weight.float() + delta

    def save_adapter(self, folder: Path) -> None:
        """What a checkpoint keeps of the model: PEFT's files in `adapter`, as Miles has it, or the whole model."""
        self.model.save_pretrained(str(folder if self._lora is None else folder / "adapter"))

    @torch.no_grad()
    def save_merged(self, folder: Path, tokenizer: Any) -> None:
        """The trained model as an ordinary Hugging Face checkpoint, in the type of the one it started from."""
        start = load_causal_lm(self.checkpoint, dtype=torch.float32, attention="sdpa", device=torch.device("cpu"))
        dtype = getattr(start.config, "dtype", None) or torch.bfloat16
        own = dict(start.named_parameters())
        for name, weight in self.merged_weights():
            own[name].copy_(weight)
        start.to(torch.bfloat16 if dtype == torch.float32 and self.dtype == torch.bfloat16 else dtype)
        start.save_pretrained(folder)
        tokenizer.save_pretrained(folder)

    def state(self) -> dict[str, Tensor]:
        """The trained parameters by name."""
        return {name: p.detach().cpu().clone() for name, p in self.trainable.items()}

    @torch.no_grad()
    def load_state(self, state: dict[str, Tensor]) -> None:
        """Raises ValueError when names or shapes are not those of this policy."""
        if state.keys() != self.trainable.keys():
            odd = sorted(state.keys() ^ self.trainable.keys())
            raise ValueError(f"the checkpoint trains other parameters: {len(odd)} differ, first {odd[0]}")
        for name, parameter in self.trainable.items():
            if state[name].shape != parameter.shape:
                raise ValueError(
                    f"{name} is {tuple(state[name].shape)} in the checkpoint, {tuple(parameter.shape)} here"
                )
            parameter.copy_(state[name])


def _adapted(model: Any, targets: tuple[str, ...], checkpoint: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Targets that the model has, and those that it lacks, by PEFT's rule: the last parts of a layer's name.

    Raises CheckpointNotUsable when it has none of them.
    """
    # A head that shares its weight with the embedding cannot change without it.
    tied = model.get_output_embeddings() if model.config.tie_word_embeddings else None
    linear = [
        str(name)
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and module is not tied
    ]
    if targets == (ALL_LINEAR,):
        return targets, ()
    there = tuple(t for t in targets if any(name == t or name.endswith(f".{t}") for name in linear))
    if not there:
        raise CheckpointNotUsable(
            f"--target-modules {','.join(targets)}: the model in {checkpoint} has none of them; it has "
            f"{', '.join(dict.fromkeys(name.rpartition('.')[2] for name in linear))}; name some, or all-linear"
        )
    return there, tuple(t for t in targets if t not in there)

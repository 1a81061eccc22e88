"""Makes a tiny checkpoint with the architecture of GLM-4.7-Flash that acts in a shell, from random weights.

    python -m benchmarks.gpu.checkpoint --tasks TASKS --out FOLDER [--steps 300]

Its sizes are those of model_shape.json: heads a multiple of 4 and routed experts of 8, for tensor parallel 4 and
expert parallel 8. A random model never writes a command: all its rewards are equal and nothing can be learned. So it
is trained for a moment (on a GPU where there is one) to write commands in the form that the shell agent reads: the
task's solution in a part of the cases, else the command of another task. GRPO then has to prefer the first.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher.model_shape import GLM_4_7_FLASH, ModelShape
from launcher.model_shape_file import shape_from

HERE = Path(__file__).parent
SHAPE = shape_from(str(HERE / "model_shape.json"), GLM_4_7_FLASH)
# Those of GLM-4.7, in its order; what a parser must see in the text is no special token.
SPECIAL = (
    *("<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>"),
    *("<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
)
VISIBLE = (
    *("<think>", "</think>", "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    *("<tool_response>", "</tool_response>"),
)
STOPS = ("<|endoftext|>", "<|user|>", "<|observation|>")
SOLVES = 0.2  # of the answers
TURNS = 3
LONGEST = 192  # tokens of a conversation that is trained on


@dataclass(frozen=True)
class Task:
    instruction: str
    solution: str


def read_tasks(folder: Path) -> list[Task]:
    """Instruction and one-line solution of every Harbor task in a folder. Raises ValueError without any."""
    tasks = [
        Task(
            (path / "instruction.md").read_text().strip(),
            (path / "solution" / "solve.sh").read_text().strip().splitlines()[-1],
        )
        for path in sorted(folder.iterdir())
        if (path / "task.toml").is_file()
    ]
    if not tasks:
        raise ValueError(f"{folder} holds no Harbor task; write some with python -m tasks")
    return tasks


def make_tokenizer(texts: list[str]) -> Any:
    """Byte-level BPE with at most `SHAPE.vocabulary` entries and GLM's special tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore[reportAttributeAccessIssue]
    bpe.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    trainer = trainers.BpeTrainer(
        vocab_size=SHAPE.vocabulary - len(SPECIAL) - len(VISIBLE),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[],
    )
    bpe.train_from_iterator(texts, trainer)
    bpe.add_special_tokens(list(SPECIAL))
    bpe.add_tokens([AddedToken(text, special=False, normalized=False) for text in VISIBLE])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=SPECIAL[0],
        pad_token=SPECIAL[0],
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = (HERE / "chat_template.jinja").read_text()
    return tokenizer


def make_model(shape: ModelShape, tokenizer: Any, seed: int) -> Any:
    """In float32, every matrix drawn anew."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(
        str(shape.model_type),
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.dense_ffn,
        moe_intermediate_size=shape.expert_ffn,
        num_hidden_layers=shape.layers,
        first_k_dense_replace=shape.dense_layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        n_routed_experts=shape.experts,
        n_shared_experts=shape.shared_experts,
        num_experts_per_tok=shape.top_k,
        routed_scaling_factor=shape.router_scale,
        q_lora_rank=shape.q_lora,
        kv_lora_rank=shape.kv_lora,
        qk_nope_head_dim=shape.qk_nope,
        qk_rope_head_dim=shape.qk_rope,
        v_head_dim=shape.v_head,
        n_group=1,
        topk_group=1,
        norm_topk_prob=True,
        rms_norm_eps=1e-5,
        attention_bias=False,
        rope_parameters={"rope_type": "default", "rope_theta": float(shape.rope_theta)},
        max_position_embeddings=8192,
        tie_word_embeddings=False,
        eos_token_id=[tokenizer.convert_tokens_to_ids(text) for text in STOPS],
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config).float()
    for parameter in model.parameters():
        if parameter.dim() >= 2:
            torch.nn.init.normal_(parameter, std=0.05)
    return model


def conversation(task: Task, tasks: list[Task], chance: random.Random) -> list[dict[str, str]]:
    """One to three turns, as the shell agent would have had them: another task's command mostly finds no such file."""
    messages = [{"role": "user", "content": task.instruction}]
    others = [other.solution for other in tasks if other != task]
    for _ in range(TURNS):
        solves = not others or chance.random() < SOLVES
        command = task.solution if solves else chance.choice(others)
        messages.append({"role": "assistant", "content": f"```bash\n{command}\n```"})
        verb, *words = command.split()
        if solves or verb == "mkdir":
            break
        problem = f"{verb}: cannot stat '{words[-1]}': No such file or directory"
        messages.append({"role": "user", "content": f"Exit code 1. Output:\n{problem}\n"})
    return messages


def encoded(messages: list[dict[str, str]], tokenizer: Any) -> tuple[list[int], list[int]]:
    """Token ids, and 1 for those that the model is to write: everything of an answer behind its opening."""
    ids: list[int] = list(tokenizer.encode("[gMASK]<sop>", add_special_tokens=False))
    written = [0] * len(ids)
    for message in messages:
        if message["role"] == "assistant":
            opening, own = "<|assistant|><think>", "</think>" + message["content"]
        else:
            opening, own = "<|user|>" + message["content"], ""
        for text, mark in ((opening, 0), (own, 1)):
            part = tokenizer.encode(text, add_special_tokens=False) if text else []
            ids += part
            written += [mark] * len(part)
        if message is messages[-1]:
            ids += tokenizer.encode("<|user|>", add_special_tokens=False)
            written.append(1)
    # The opening of the next message is also what ends an answer before it.
    user = tokenizer.convert_tokens_to_ids("<|user|>")
    for place in range(1, len(ids)):
        if ids[place] == user and written[place - 1]:
            written[place] = 1
    return ids[:LONGEST], written[:LONGEST]


def teach(model: Any, tokenizer: Any, tasks: list[Task], *, steps: int, batch: int, lr: float, seed: int) -> float:
    """Supervised steps on drawn conversations; the mean loss of the last ten."""
    import torch
    from torch.nn.functional import cross_entropy

    chance = random.Random(seed)
    device = next(model.parameters()).device
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.98), weight_decay=0.0)
    losses: list[float] = []
    begun = time.monotonic()
    for step in range(steps):
        drawn = [encoded(conversation(chance.choice(tasks), tasks, chance), tokenizer) for _ in range(batch)]
        longest = max(len(ids) for ids, _ in drawn)
        ids = torch.tensor([row + [tokenizer.pad_token_id] * (longest - len(row)) for row, _ in drawn], device=device)
        marks = torch.tensor([row + [0] * (longest - len(row)) for _, row in drawn], device=device)
        logits = model(ids).logits[:, :-1].float()
        labels = ids[:, 1:].masked_fill(marks[:, 1:] == 0, -100)
        loss = cross_entropy(logits.flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1.0, (step + 1) / 20) * (1.0 - 0.9 * step / steps)
        optimizer.step()
        losses.append(loss.item())
        if step % 25 == 0:
            print(f"step {step}/{steps}  loss {losses[-1]:.3f}  {time.monotonic() - begun:.0f} s", flush=True)
    return sum(losses[-10:]) / len(losses[-10:])


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="checkpoint", description=__doc__, allow_abbrev=False)
    parser.add_argument("--tasks", type=Path, required=True, help="folder of Harbor tasks")
    parser.add_argument("--out", type=Path, required=True, help="folder of the checkpoint")
    parser.add_argument("--steps", type=int, default=300, help="supervised steps; 0: random weights (%(default)s)")
    parser.add_argument("--batch", type=int, default=32, help="conversations of a step (%(default)s)")
    parser.add_argument("--lr", type=float, default=2e-3, help="learning rate (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of weights and conversations (%(default)s)")
    parser.add_argument("--device", help="where it is trained (cuda where there is one)")
    options = parser.parse_args(argv)
    import torch

    tasks = read_tasks(options.tasks)
    texts = [path.read_text() for path in sorted(HERE.parents[1].glob("*.md"))]
    texts += [f"{task.instruction}\n```bash\n{task.solution}\n```\nExit code 1. Output:\n" for task in tasks] * 20
    tokenizer = make_tokenizer(texts)
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    model = make_model(SHAPE, tokenizer, options.seed).to(device)
    if options.steps:
        loss = teach(
            model, tokenizer, tasks, steps=options.steps, batch=options.batch, lr=options.lr, seed=options.seed
        )
        print(f"loss of the last ten steps {loss:.3f}")
    model.to(torch.bfloat16).save_pretrained(options.out)
    tokenizer.save_pretrained(options.out)
    count = sum(parameter.numel() for parameter in model.parameters())
    print(f"{options.out}: {count / 1e6:.1f} million parameters, {len(tokenizer)} tokens")
    return 0


if __name__ == "__main__":
    sys.exit(main())

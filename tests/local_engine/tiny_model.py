"""A Llama of two layers with a byte-level tokenizer and a ChatML template, made in a second, in ordinary HF files.

Weights are random and large enough that a wrong attention shows in every log-probability. Commands given as `likely`
become single tokens that the model writes with high probability: a policy whose tries differ in reward.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from harbor_service.shell_prompt import EXAMPLE_TURNS, FORMAT_REMINDER, SYSTEM_PROMPT

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
HIDDEN = 64
LOUD = 3.0  # one coordinate of every embedding, by which the head can favour a token in any context


def make_tokenizer(likely: Sequence[str] = ()) -> Any:
    """About 400 tokens; every text can be written, in more than one way."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore
    tokenizer.decoder = decoders.ByteLevel()  # pyright: ignore
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [SYSTEM_PROMPT, FORMAT_REMINDER, "Exit code 1. Output:", *(turn["content"] for turn in EXAMPLE_TURNS)]
    tokenizer.train_from_iterator(texts * 3, trainer)
    tokenizer.add_tokens(list(likely))
    fast: Any = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|im_end|>", bos_token="<|im_start|>"
    )
    fast.chat_template = CHATML
    return fast


def make_checkpoint(folder: Path, *, likely: dict[str, float] | None = None, seed: int = 0, std: float = 0.15) -> Path:
    """`likely` maps texts to logits above the others (some 400 of about 0)."""
    likely = likely or {}
    tokenizer = make_tokenizer(list(likely))
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=HIDDEN,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        initializer_range=std,
        tie_word_embeddings=False,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=tokenizer.bos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        model.model.embed_tokens.weight[:, 0] = LOUD
        model.lm_head.weight[:, 0] = 0
        for text, logit in likely.items():
            model.lm_head.weight[tokenizer.convert_tokens_to_ids(text), 0] = logit / 5
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder

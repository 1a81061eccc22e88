"""A small real tokenizer, one token a word, in the files that transformers loads."""

from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast


def save_word_tokenizer(folder: Path) -> Path:
    words = Tokenizer(models.WordLevel({"?": 0, "one": 1, "two": 2, "three": 3}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?")
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    tokenizer.save_pretrained(str(folder))
    return folder

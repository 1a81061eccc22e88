"""How long the prompts are, in tokens of a tokenizer or in characters."""

from collections import Counter
from typing import Any, cast

from miles_data.findings import DataError
from miles_data.optional_package import optional_package
from miles_data.rows import JsonObject

_BATCH = 256


def load_tokenizer(name: str) -> Any:
    """A tokenizer of transformers, by the name or folder of its model. Raises DataError."""
    transformers = optional_package("transformers", "transformers", "--tokenizer")
    try:
        return transformers.AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        cause = str(error).strip().split("\n")[0]
        raise DataError(f"--tokenizer {name} cannot be loaded: {cause}") from error


class PromptLengths:
    """Counts lengths; of messages in tokens by the tokenizer's chat template, in characters those of their contents."""

    def __init__(self, tokenizer: str | None = None) -> None:
        self._tokenizer = load_tokenizer(tokenizer) if tokenizer is not None else None
        self.unit = "tokens" if self._tokenizer else "characters"
        self._counts: Counter[int] = Counter()
        self._waiting: list[str] = []

    def add(self, prompt: str | list[JsonObject] | int) -> None:
        """A number is the length of a prompt that was measured elsewhere."""
        if isinstance(prompt, int):
            self._counts[prompt] += 1
        else:
            self._count(prompt, 1)

    def remove(self, prompt: str | list[JsonObject]) -> None:
        """Take back a prompt that was added."""
        self._flush()
        self._count(prompt, -1)
        self._flush(-1)

    def _count(self, prompt: str | list[JsonObject], sign: int) -> None:
        if self._tokenizer is None:
            self._counts[characters(prompt)] += sign
        elif isinstance(prompt, str):
            # One call for many is several times faster.
            self._waiting.append(prompt)
            if len(self._waiting) == _BATCH:
                self._flush()
        else:
            ids: list[int] = self._tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=False)
            self._counts[len(ids)] += sign

    def _flush(self, sign: int = 1) -> None:
        if self._waiting and self._tokenizer is not None:
            encoded: list[list[int]] = self._tokenizer(self._waiting, add_special_tokens=False)["input_ids"]
            for ids in encoded:
                self._counts[len(ids)] += sign
            self._waiting.clear()

    def quantile(self, share: float) -> int:
        """The smallest length that at least this share of the prompts does not exceed; 0 where there is none."""
        self._flush()
        wanted, seen = share * self._counts.total(), 0
        for length in sorted(self._counts):
            seen += self._counts[length]
            if seen and seen >= wanted:
                return length
        return 0

    def above(self, limit: int) -> int:
        """How many are longer than `limit`."""
        self._flush()
        return sum(count for length, count in self._counts.items() if length > limit)


def characters(prompt: str | list[JsonObject]) -> int:
    """Of messages, those of their contents."""
    return len(prompt) if isinstance(prompt, str) else sum(_characters(message) for message in prompt)


def _characters(message: JsonObject) -> int:
    content: object = message.get("content")
    if isinstance(content, str):
        return len(content)
    if isinstance(content, list):
        parts = [cast(JsonObject, part) for part in cast(list[object], content) if isinstance(part, dict)]
        return sum(len(part["text"]) for part in parts if isinstance(part.get("text"), str))
    return 0

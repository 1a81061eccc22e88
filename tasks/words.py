"""The words that fill the sentences. Training and held-out instances share none of them.

The lists and the sentences of `tasks.families` were measured together with SmolLM2-135M-Instruct: its success before
training depends on both, so a change here needs a new measurement.
"""

from dataclasses import dataclass
from typing import Literal

Split = Literal["train", "test"]
SPLITS: tuple[Split, ...] = ("train", "test")


@dataclass(frozen=True)
class Vocabulary:
    """What one split may name. `files` are stems: a family adds the ending."""

    files: tuple[str, ...]
    words: tuple[str, ...]
    folders: tuple[str, ...]
    endings: tuple[str, ...]


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split())


VOCABULARIES: dict[Split, Vocabulary] = {
    "train": Vocabulary(
        files=_split(
            "notes report list data todo draft plan memo diary recipe"
            " budget letter story paper map log menu quiz song poem"
        ),
        words=_split(
            "apple river stone cloud green happy table music light winter"
            " paper tiger lemon silver ocean garden bread tower maple candle"
        ),
        folders=_split("src docs backup images archive build output music temp photos"),
        endings=_split("tmp log bak old csv"),
    ),
    "test": Vocabulary(
        files=_split("summary invoice agenda outline journal catalog roster ledger essay script"),
        words=_split("orange forest purple window rocket summer violin copper meadow falcon"),
        folders=_split("assets reports videos projects storage"),
        endings=_split("cache swp dat"),
    ),
}

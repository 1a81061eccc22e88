"""One task of any kind, as a value: what `tasks.folder` writes as a Harbor task folder."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tasks.words import SPLITS, Split


class UnknownFamily(ValueError):
    """A family or split that does not exist; the message lists those that do."""


class Verifier(Protocol):
    """What decides on the reward."""

    def tests(self, partial_credit: bool) -> Mapping[str, str]:
        """Texts of the files in tests/, `test.sh` among them."""
        ...


@dataclass(frozen=True)
class Instance:
    """One task. Paths are relative to /app; `files` maps a path to its text, `solution` is one line of bash."""

    family: str
    split: Split
    seed: int
    instruction: str
    solution: str
    verifier: Verifier
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    folders: tuple[str, ...] = ()

    @property
    def instance_id(self) -> str:
        return f"{self.family}-{self.split}-{self.seed:06d}"


def validate_place(families: Collection[str], family: str, split: str, seed: int) -> None:
    """Raises UnknownFamily where these three name no instance."""
    if family not in families:
        raise UnknownFamily(f"no task family {family!r}; there are: {', '.join(families)}")
    if split not in SPLITS:
        raise UnknownFamily(f"no task split {split!r}; there are: {', '.join(SPLITS)}")
    if not 0 <= seed < 1_000_000:
        raise UnknownFamily(f"a task seed is a number from 0 to 999999, got {seed}")

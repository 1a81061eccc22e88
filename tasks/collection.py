"""Families of tasks that belong together."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tasks.instance import Instance
from tasks.words import Split


@dataclass(frozen=True)
class Collection:
    """Families that belong together."""

    name: str
    """In front of the slash of every task's name."""
    about: str
    """What a task is, in a few words."""
    image: str
    """Base image, where the sandbox is a container."""
    groups: Mapping[str, tuple[str, ...]]
    """Families by the name of their group; the first group is taken where none is named."""
    make: Callable[[str, Split, int], Instance]
    """The instance of a family, a split and a seed from 0 to 999999: a pure function. Raises UnknownFamily."""

    def families(self, named: tuple[str, ...]) -> tuple[str, ...]:
        """Names of families and groups, each perhaps several with commas between, as families; each once."""
        names = [name for given in named for name in given.split(",") if name] or [next(iter(self.groups))]
        return tuple(dict.fromkeys(family for name in names for family in self.groups.get(name, (name,))))

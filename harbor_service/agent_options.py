"""Options of an agent that a record or the server sets, checked before a trial starts. Standard library only."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self, cast

Rule = tuple[str, Callable[[object], bool]]
"""What a value must be, in words and as a test."""


class BadAgentOptions(ValueError):
    """The agent is unknown or cannot run here, or one of its options is unknown or has a value that cannot work."""


@dataclass(frozen=True)
class AgentOptions:
    """Base of the option blocks: subclasses name their agent and give a rule for every field."""

    agent: ClassVar[str]
    rules: ClassVar[Mapping[str, Rule]]
    lists: ClassVar[tuple[str, ...]] = ()  # JSON has lists, a frozen block holds tuples

    @classmethod
    def names(cls) -> set[str]:
        """The options that the agent has."""
        return {f.name for f in fields(cls)}

    @classmethod
    def from_mapping(cls, options: Mapping[str, object]) -> Self:
        """Read `agent_options`.

        Raises:
            BadAgentOptions: an unknown name, a wrong type or a number out of range; the text names all known options.
        """
        if unknown := sorted(set(options) - cls.names()):
            known = ", ".join(sorted(cls.names()))
            raise BadAgentOptions(f"unknown {cls.agent} agent option {', '.join(unknown)}; known: {known}")
        values: dict[str, Any] = dict(options)
        for name in cls.lists:
            if isinstance(values.get(name), list):
                values[name] = tuple(cast("list[object]", values[name]))
        return cls(**values)

    def __post_init__(self) -> None:
        for name, (wanted, holds) in self.rules.items():
            value: object = getattr(self, name)
            if not holds(value):
                raise BadAgentOptions(f"{self.agent} agent option {name} must be {wanted}, not {value!r:.80}")


def is_count(value: object) -> bool:
    """A whole number of at least 1."""
    return type(value) is int and value >= 1


def is_text(value: object) -> bool:
    """A string with something in it."""
    return isinstance(value, str) and bool(value)


def each(holds: Callable[[object], bool]) -> Callable[[object], bool]:
    """A list (kept as a tuple) whose every item passes."""
    return lambda values: isinstance(values, tuple) and all(holds(value) for value in cast("tuple[object]", values))


COUNT: Rule = ("a whole number of at least 1", is_count)
BOOLEAN: Rule = ("true or false", lambda value: isinstance(value, bool))
TEXT_OR_NONE: Rule = ("text or null", lambda value: value is None or is_text(value))

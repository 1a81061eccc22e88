"""Options of the shell agent, checked before a trial starts. Standard library only."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Final, cast

from harbor_service.shell_prompt import CLOSED_BLOCK, EXAMPLE_TURNS, SYSTEM_PROMPT

_ROLES = ("system", "user", "assistant")


class BadAgentOptions(ValueError):
    """An option of `agent_options` is unknown or has a value that cannot work."""


@dataclass(frozen=True)
class ShellOptions:
    """What a record's `agent_options` may set; the defaults are the local engine's measured ones."""

    system_prompt: str = SYSTEM_PROMPT  # empty: no system message
    example_turns: tuple[dict[str, str], ...] = field(default_factory=lambda: tuple(EXAMPLE_TURNS))
    max_turns: int = 3  # model calls in one trial
    end_on_success: bool = True  # a command with exit code 0 ends the episode
    submit_command: str | None = None  # this command alone in the block ends the episode
    observation_limit: int = 200  # characters of output shown to the model
    command_timeout: int = 10  # seconds one command may run
    stop: tuple[str, ...] = ()  # generation ends once the reply holds one of these texts
    stop_regex: tuple[str, ...] = (CLOSED_BLOCK,)  # or a match of one of these patterns (SGLang's name for it)

    @classmethod
    def from_mapping(cls, options: Mapping[str, object]) -> "ShellOptions":
        """Read `agent_options`.

        Raises:
            BadAgentOptions: an unknown name, a wrong type or a number out of range; the text names all known options.
        """
        known = {f.name for f in fields(cls)}
        if unknown := sorted(set(options) - known):
            raise BadAgentOptions(f"unknown shell agent option {', '.join(unknown)}; known: {', '.join(sorted(known))}")
        values: dict[str, object] = dict(options)
        for name in ("example_turns", "stop", "stop_regex"):
            if name in values:
                values[name] = tuple(_list(name, values[name]))
        return cls(**values)  # pyright: ignore[reportArgumentType]  types are checked by _RULES

    def __post_init__(self) -> None:
        for name, (wanted, holds) in _RULES.items():
            value: object = getattr(self, name)
            if not holds(value):
                raise BadAgentOptions(f"shell agent option {name} must be {wanted}, not {value!r:.80}")


def _list(name: str, value: object) -> list[object]:
    if value is None and name in ("stop", "stop_regex"):
        return []
    if not isinstance(value, list | tuple):
        raise BadAgentOptions(f"shell agent option {name} must be a list, not {value!r:.80}")
    return list(cast("list[object]", value))


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 1


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _is_pattern(value: object) -> bool:
    try:
        re.compile(cast("str", value))
    except (re.error, TypeError):
        return False
    return _is_text(value)


def _is_chat_turn(turn: object) -> bool:
    if not isinstance(turn, dict):
        return False
    message = cast("dict[str, object]", turn)
    return set(message) == {"role", "content"} and message["role"] in _ROLES and isinstance(message["content"], str)


def _each(holds: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda values: all(holds(value) for value in cast("tuple[object, ...]", values))


_RULES: Final[dict[str, tuple[str, Callable[[object], bool]]]] = {
    "system_prompt": ("a string", lambda value: isinstance(value, str)),
    "example_turns": (f"messages with role ({', '.join(_ROLES)}) and content", _each(_is_chat_turn)),
    "max_turns": ("a whole number of at least 1", _is_count),
    "end_on_success": ("true or false", lambda value: isinstance(value, bool)),
    "submit_command": ("text or null", lambda value: value is None or _is_text(value)),
    "observation_limit": ("a whole number of at least 1", _is_count),
    "command_timeout": ("a whole number of at least 1", _is_count),
    "stop": ("a list of strings", _each(_is_text)),
    "stop_regex": ("a list of regular expressions", _each(_is_pattern)),
}

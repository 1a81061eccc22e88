"""Options of the shell agent, checked before a trial starts. Standard library only."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import cast

from harbor_service.shell_prompt import CLOSING_FENCE, EXAMPLE_TURNS, SYSTEM_PROMPT

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
    stop: tuple[str, ...] = (CLOSING_FENCE,)  # generation ends once the reply holds one of these; empty: no stop

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
        for name in ("example_turns", "stop"):
            if name in values:
                values[name] = tuple(_list(name, values[name]))
        made = cls(**values)  # pyright: ignore[reportArgumentType]  types are checked by name in __post_init__
        return made

    def __post_init__(self) -> None:
        _require("system_prompt", isinstance(self.system_prompt, str), "a string", self.system_prompt)
        for turn in cast("tuple[object, ...]", self.example_turns):
            _require(
                "example_turns", _is_chat_turn(turn), f"messages with role ({', '.join(_ROLES)}) and content", turn
            )
        for name in ("max_turns", "observation_limit", "command_timeout"):
            value: object = getattr(self, name)
            _require(name, type(value) is int and value >= 1, "a whole number of at least 1", value)
        _require("end_on_success", isinstance(self.end_on_success, bool), "true or false", self.end_on_success)
        submit: object = self.submit_command
        _require("submit_command", submit is None or (isinstance(submit, str) and bool(submit)), "text or null", submit)
        for text in cast("tuple[object, ...]", self.stop):
            _require("stop", isinstance(text, str) and bool(text), "a list of strings", text)


def _list(name: str, value: object) -> list[object]:
    if value is None and name == "stop":
        return []
    _require(name, isinstance(value, list | tuple), "a list", value)
    return list(cast("list[object]", value))


def _is_chat_turn(turn: object) -> bool:
    if not isinstance(turn, dict):
        return False
    message = cast("dict[str, object]", turn)
    return set(message) == {"role", "content"} and message["role"] in _ROLES and isinstance(message["content"], str)


def _require(name: str, holds: bool, wanted: str, got: object) -> None:
    if not holds:
        raise BadAgentOptions(f"shell agent option {name} must be {wanted}, not {got!r:.80}")

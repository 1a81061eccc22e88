"""Options of the shell agent. Standard library only."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Self, cast

from harbor_service.agent_options import BOOLEAN, COUNT, TEXT_OR_NONE, AgentOptions, Rule, each, is_text
from harbor_service.shell_prompt import CLOSED_BLOCK, EXAMPLE_TURNS, SYSTEM_PROMPT

_ROLES = ("system", "user", "assistant")


def _is_pattern(value: object) -> bool:
    try:
        re.compile(cast("str", value))
    except (re.error, TypeError):
        return False
    return is_text(value)


def _is_chat_turn(turn: object) -> bool:
    if not isinstance(turn, dict):
        return False
    message = cast("dict[str, object]", turn)
    return set(message) == {"role", "content"} and message["role"] in _ROLES and isinstance(message["content"], str)


@dataclass(frozen=True)
class ShellOptions(AgentOptions):
    """What a record's `agent_options` may set; the defaults are the local engine's measured ones."""

    # Without the cheat sheet, the examples and the rule that a command which works ends the episode, a model of
    # 135 million parameters solves 0.7% of the easy tasks and never learns to say that it is done.
    system_prompt: str = SYSTEM_PROMPT  # empty: no system message
    example_turns: tuple[dict[str, str], ...] = field(default_factory=lambda: tuple(EXAMPLE_TURNS))
    max_turns: int = 3  # model calls in one trial
    end_on_success: bool = True  # a command with exit code 0 ends the episode
    submit_command: str | None = None  # this command alone in the block ends the episode
    observation_limit: int = 200  # characters of output shown to the model
    command_timeout: int = 10  # seconds one command may run
    stop: tuple[str, ...] = ()  # generation ends once the reply holds one of these texts
    stop_regex: tuple[str, ...] = (CLOSED_BLOCK,)  # or a match of one of these patterns (SGLang's name for it)

    agent: ClassVar[str] = "shell"
    lists: ClassVar[tuple[str, ...]] = ("example_turns", "stop", "stop_regex")
    rules: ClassVar[Mapping[str, Rule]] = {
        "system_prompt": ("a string", lambda value: isinstance(value, str)),
        "example_turns": (f"a list of messages with role ({', '.join(_ROLES)}) and content", each(_is_chat_turn)),
        "max_turns": COUNT,
        "end_on_success": BOOLEAN,
        "submit_command": TEXT_OR_NONE,
        "observation_limit": COUNT,
        "command_timeout": COUNT,
        "stop": ("a list of strings", each(is_text)),
        "stop_regex": ("a list of regular expressions", each(_is_pattern)),
    }

    @classmethod
    def from_mapping(cls, options: Mapping[str, object]) -> Self:
        """As for every agent; null for `stop` and `stop_regex` means none."""
        return super().from_mapping(
            {name: () if value is None and name in ("stop", "stop_regex") else value for name, value in options.items()}
        )

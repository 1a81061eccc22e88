"""Options of mini-swe-agent. Standard library only."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from harbor_service.agent_options import BOOLEAN, COUNT, TEXT_OR_NONE, AgentOptions, Rule


@dataclass(frozen=True)
class MiniOptions(AgentOptions):
    """What a record's `agent_options` may set; null templates are those of mini-swe-agent's own configuration."""

    max_turns: int = 100  # model calls in one trial
    command_timeout: int = 30  # seconds one command may run
    max_format_errors: int = 3  # this many in a row end the episode
    tools: bool = False  # ask for its bash tool instead of a block of text: the endpoint must know tool calls
    system_template: str | None = None
    instance_template: str | None = None
    observation_template: str | None = None
    format_error_template: str | None = None

    agent: ClassVar[str] = "mini-swe-agent"
    rules: ClassVar[Mapping[str, Rule]] = {
        "max_turns": COUNT,
        "command_timeout": COUNT,
        "max_format_errors": COUNT,
        "tools": BOOLEAN,
        "system_template": TEXT_OR_NONE,
        "instance_template": TEXT_OR_NONE,
        "observation_template": TEXT_OR_NONE,
        "format_error_template": TEXT_OR_NONE,
    }

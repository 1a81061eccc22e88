"""Options of terminus-2. Standard library only."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from harbor_service.agent_options import COUNT, AgentOptions, Rule

_PARSERS = ("json", "xml")


@dataclass(frozen=True)
class TerminusOptions(AgentOptions):
    """What a record's `agent_options` may set.

    Summarisation is not among them: it replaces the history, which a session may only extend. Nor is recording: it
    installs asciinema in the sandbox.
    """

    max_turns: int = 100  # model calls in one trial
    parser_name: str = "json"  # the form of an answer
    pane_width: int = 160  # columns
    pane_height: int = 40  # lines

    agent: ClassVar[str] = "terminus-2"
    rules: ClassVar[Mapping[str, Rule]] = {
        "max_turns": COUNT,
        "parser_name": (" or ".join(_PARSERS), lambda value: value in _PARSERS),
        "pane_width": COUNT,
        "pane_height": COUNT,
    }

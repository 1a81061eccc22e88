"""The agents that run in the server process on the session's model. Standard library only."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from harbor_service.agent_options import AgentOptions, BadAgentOptions
from harbor_service.mini_options import MiniOptions
from harbor_service.shell_options import ShellOptions
from harbor_service.terminus_options import TerminusOptions

SHELL: Final = ShellOptions.agent


@dataclass(frozen=True)
class OwnAgent:
    """Where its class is, what it can be told, and the program that it needs in the sandbox."""

    import_path: str
    options: type[AgentOptions]
    needs: str | None = None


OWN_AGENTS: Final[Mapping[str, OwnAgent]] = {
    SHELL: OwnAgent("harbor_service.shell_agent:ShellAgent", ShellOptions),
    MiniOptions.agent: OwnAgent("harbor_service.mini_agent:MiniAgent", MiniOptions),
    TerminusOptions.agent: OwnAgent("harbor_service.terminus_agent:TerminusAgent", TerminusOptions, needs="tmux"),
}


def check_default_options(options: Mapping[str, Any]) -> None:
    """Check options of a server, which apply to each agent that has them.

    Raises:
        BadAgentOptions: a name that no agent has, or a value that one of them refuses.
    """
    known = set[str]().union(*(own.options.names() for own in OWN_AGENTS.values()))
    if unknown := sorted(set(options) - known):
        raise BadAgentOptions(f"unknown agent option {', '.join(unknown)}; known: {', '.join(sorted(known))}")
    for own in OWN_AGENTS.values():
        own.options.from_mapping(had_by(own.options.names(), options))


def had_by(names: set[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """The part of `options` with one of `names`."""
    return {name: value for name, value in options.items() if name in names}

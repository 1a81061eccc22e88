"""`--agent-options`: what the agents of the local engine's own agent server are told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from harbor_service.agent_options import BadAgentOptions
from harbor_service.own_agents import check_default_options
from launcher.errors import OptionsError

_OPTION = "--agent-options"


def read_agent_options(given: str | None) -> dict[str, Any]:
    """A JSON object, or the object in the file that is named; raises OptionsError before anything starts."""
    if given is None:
        return {}
    text, place = given, _OPTION
    if not given.lstrip().startswith("{"):
        place = f"{_OPTION} {given}"
        try:
            text = Path(given).expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise OptionsError(f"{place}: cannot be read ({error}); pass a JSON object or a file with one") from None
    try:
        loaded: object = json.loads(text)
    except json.JSONDecodeError as error:
        raise OptionsError(f"{place}: not valid JSON ({error.msg} at line {error.lineno})") from None
    if not isinstance(loaded, dict):
        raise OptionsError(f"{place}: must be a JSON object")
    options = cast(dict[str, Any], loaded)
    if "max_turns" in options:
        raise OptionsError(f"{place}: max_turns has a flag of its own; pass --max-turns {options['max_turns']}")
    try:
        check_default_options(options)
    except BadAgentOptions as error:
        raise OptionsError(f"{place}: {error}") from None
    return options

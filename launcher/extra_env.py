"""`--extra-env-vars`: a JSON object, or NAME=VALUE items."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from launcher.errors import OptionsError
from launcher.secrets import has_credentials, is_secret_name

_OPTION = "--extra-env-vars"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

# A second way to say the same thing would leave two answers to which one holds.
OPTION_OF_VARIABLE: Mapping[str, str] = {
    "AGENT_SERVER_URL": "--agent-server-url",
    "SWE_AGENT_URL": "--agent-server-url",
    "AGENT_MODEL_NAME": "--agent-model-name",
    "HARBOR_TASKS_DIR": "--harbor-tasks-dir",
    "MILES_HOST_IP": "--miles-host-ip",
    "MAX_CONSECUTIVE_DISCARDS": "--max-consecutive-discards",
    "TRACES_DIR": "--save-traces-dir",
}


def parse_extra_env(items: Sequence[str]) -> dict[str, str]:
    """Variables by name; a value keeps its further `=`. Refuses secrets without repeating their value.

    Raises OptionsError: item without `=`, bad name, value that is neither text nor number, secret, doubled name.
    """
    text = " ".join(items).strip()
    pairs = _json_pairs(text) if text.startswith("{") else _item_pairs(text)
    variables: dict[str, str] = {}
    for name, value in pairs:
        _validate(name, value)
        if name in variables:
            raise OptionsError(f"{_OPTION}: {name} is given twice; keep one")
        variables[name] = value
    return variables


def _item_pairs(text: str) -> Iterator[tuple[str, str]]:
    # One by one: behind a name that is refused may come what was meant as its value.
    for item in text.split():
        name, equals, value = item.partition("=")
        if not equals:
            raise OptionsError(
                f"{_OPTION}: {item!r} has no '='; write NAME=VALUE, and use JSON for a value with spaces: "
                '\'{"NAME": "two words"}\''
            )
        yield name, value


def _json_pairs(text: str) -> list[tuple[str, str]]:
    try:
        loaded: object = json.loads(text, object_pairs_hook=list)
    except json.JSONDecodeError as error:
        raise OptionsError(f"{_OPTION}: not valid JSON ({error.msg} at character {error.pos + 1})") from None
    pairs: list[tuple[str, str]] = []
    for name, value in cast(list[tuple[str, object]], loaded):
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise OptionsError(f"{_OPTION}: the value of {name} is neither text nor a number; write it in quotes")
        pairs.append((name, value if isinstance(value, str) else json.dumps(value)))
    return pairs


def _validate(name: str, value: str) -> None:
    if not _NAME.match(name):
        raise OptionsError(f"{_OPTION}: {name!r} is not a name of an environment variable (letters, digits, _)")
    if is_secret_name(name):
        raise OptionsError(
            f"{_OPTION}: {name} is a secret and would be visible in the job's description; put it in a file that "
            f"the workers can read and pass {name}_FILE=path"
        )
    if has_credentials(value):
        raise OptionsError(f"{_OPTION}: the value of {name} is a URL with a user or password; pass it without them")
    if "\0" in value:
        raise OptionsError(f"{_OPTION}: the value of {name} contains a zero byte")
    if name in OPTION_OF_VARIABLE:
        raise OptionsError(f"{_OPTION}: {name} has an option of its own; use {OPTION_OF_VARIABLE[name]}")

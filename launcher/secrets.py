"""What must not travel in arguments, plans and logs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import cast
from urllib.parse import urlsplit

from launcher.addresses import is_host
from launcher.errors import OptionsError

HIDDEN = "***"
SECRET_SUFFIXES = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
SECRET_NAMES = frozenset(suffix[1:] for suffix in SECRET_SUFFIXES)
# Flags that take a secret; `--input-key prompt` and its kind name a field of the data.
_SECRET_FLAGS = ("-secret", "-password", "-auth-token", "-access-token", "-api-key", "--hf-token", "--wandb-key")
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
# Looked for from its middle: from the scheme on, a long value without any would be searched once for each character.
_URL_WITH_CREDENTIALS = re.compile(r"(?<=[A-Za-z0-9+.-])://[^/\s?#]*@")


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name holds a secret; one in `_FILE` holds a path."""
    return name.upper().endswith(SECRET_SUFFIXES) or name.upper() in SECRET_NAMES


def carries_secret(argument: str) -> bool:
    """Whether an argument is a flag that takes a secret, or NAME=VALUE of one."""
    name, equals, _ = argument.partition("=")
    if name.startswith("--"):
        return name.lower().endswith(_SECRET_FLAGS)
    return bool(equals) and is_secret_name(name)


def shown_name(text: str) -> str:
    """A key of somebody's file for an error: as far as it is a name, since a secret may stand behind that."""
    name = _NAME.match(text)
    shown = name[0][:60] if name else ""
    return shown if shown == text else f"{shown}..."


def has_credentials(text: str) -> bool:
    """Whether a URL with `user:password@` is in the text."""
    return _URL_WITH_CREDENTIALS.search(text) is not None


def validate_no_credentials(source: str, value: object) -> None:
    """`value` is text or a tuple of texts; `source` names the option or variable, the value is never repeated."""
    texts = cast(tuple[object, ...], value) if isinstance(value, tuple) else (value,)
    if any(isinstance(text, str) and has_credentials(text) for text in texts):
        raise OptionsError(
            f"{source} carries a user or password in a URL, which would end up in plans and logs; give it without them"
        )


def validate_no_secret(source: str, arguments: Iterable[str]) -> None:
    """`source` names the option and its file; of an argument only the name is repeated."""
    for argument in arguments:
        if carries_secret(argument):
            raise OptionsError(
                f"{source}: {argument.partition('=')[0]} takes a secret, which plan, log and the job's description "
                "would show; put it in a file that the workers can read and pass its path with --extra-env-vars "
                "NAME_FILE=path"
            )


def without_credentials(text: str) -> str:
    """For an error that repeats what was given."""
    return repr(text) if "@" not in text else f"'{HIDDEN}@{text.rpartition('@')[2]}'"


def validate_url(option: str, url: str) -> None:
    """http or https, a host, no user and no password; the error never repeats the URL's credentials."""
    if has_credentials(url):
        raise OptionsError(
            f"{option} carries a user or password, which would end up in logs; give it without them and set "
            "AGENT_SERVER_TOKEN_FILE=path on both sides"
        )
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and is_host(parts.hostname or "") and parts.port != 0
        # urlsplit drops line breaks and tabs that a client then stumbles over.
        usable = usable and url.isascii() and url.isprintable() and " " not in url
    except ValueError:
        usable = False
    if not usable:
        raise OptionsError(f"{option} {url!r} is not a URL like http://host:port")


def shown(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment as a plan may print it."""
    return {
        name: HIDDEN if is_secret_name(name) or has_credentials(value) else value for name, value in environment.items()
    }

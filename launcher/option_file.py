"""A file with a JSON object that an option names."""

from __future__ import annotations

from typing import Any

from launcher.checks.checkpoints import read_object
from launcher.errors import OptionsError
from launcher.paths import absolute


def read_option_file(option: str, path: str) -> dict[str, Any]:
    """Raises OptionsError where there is no such file, or no object in it."""
    try:
        return read_object(absolute(path))
    except FileNotFoundError:
        raise OptionsError(f"{option} {path} is not there; write one, or leave the option out") from None
    except (OSError, ValueError) as error:
        raise OptionsError(f"{option} {path} cannot be read as a JSON object: {error}") from None

"""JSON from elsewhere: an object whose numbers are finite, or a named error."""

from __future__ import annotations

import json
import math
import os
from typing import Any, cast


def json_object(text: bytes) -> dict[str, Any]:
    """A number that no float can hold becomes None. Raises ValueError where it is no object, or nested too deep."""
    try:
        loaded: object = json.loads(text, parse_int=_finite_int, parse_float=_finite, parse_constant=_finite)
    except RecursionError:
        raise ValueError("JSON nested too deep") from None
    if not isinstance(loaded, dict):
        raise ValueError("no JSON object")
    return cast(dict[str, Any], loaded)


def is_process_text(value: object) -> bool:
    """Whether it is text that an argument or a variable of a process can be: JSON can hold more than that."""
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        os.fsencode(value)
    except UnicodeEncodeError:
        return False
    return True


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def _finite_int(text: str) -> int | None:
    return None if _finite(text) is None else int(text)

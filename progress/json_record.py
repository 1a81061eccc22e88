"""Dataclasses from JSON that anybody may have written: the declared types, or nothing."""

from __future__ import annotations

import dataclasses
import math
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, cast, get_args, get_origin, get_type_hints


class NotThisRecord(ValueError):
    """The JSON value is not what the dataclass declares."""


def decode[T](kind: type[T], value: object) -> T:
    """An instance of the dataclass `kind` from a JSON object. Raises NotThisRecord.

    Field types: int, float, bool, str, None, unions of these, tuple[X, ...], list[X], dict[str, X] and dataclasses.
    An int is taken for a float; a bool is no int; NaN and infinities are refused.
    """
    if not isinstance(value, dict):
        raise NotThisRecord(f"{kind.__name__} from {type(value).__name__}")
    given = cast(dict[str, object], value)
    hints = _hints(kind)
    if given.keys() != hints.keys():
        raise NotThisRecord(f"{kind.__name__} with other fields")
    return kind(**{name: _value(hint, given[name]) for name, hint in hints.items()})


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    names = {field.name for field in dataclasses.fields(kind)}
    return {name: hint for name, hint in get_type_hints(kind).items() if name in names}


def _value(hint: Any, value: object) -> Any:
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return _first_that_fits(get_args(hint), value)
    if origin is tuple:
        return tuple(_value(get_args(hint)[0], part) for part in _list(value))
    if origin is list:
        return [_value(get_args(hint)[0], part) for part in _list(value)]
    if origin is dict:
        if not isinstance(value, dict):
            raise NotThisRecord("no object")
        of = get_args(hint)[1]
        return {key: _value(of, part) for key, part in cast(dict[str, object], value).items()}
    if dataclasses.is_dataclass(hint):
        return decode(cast(type[Any], hint), value)
    return _scalar(hint, value)


def _first_that_fits(hints: tuple[Any, ...], value: object) -> Any:
    for hint in hints:
        try:
            return _value(hint, value)
        except NotThisRecord:
            continue
    raise NotThisRecord("none of the declared types")


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise NotThisRecord("no list")
    return cast(list[object], value)


def _scalar(hint: Any, value: object) -> Any:
    if hint is NoneType:
        fits = value is None
    elif hint is float:
        fits = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        value = float(value) if fits else value  # pyright: ignore[reportArgumentType]
    elif hint is int:
        fits = isinstance(value, int) and not isinstance(value, bool)
    else:
        fits = isinstance(value, hint)
    if not fits:
        raise NotThisRecord(f"{hint} from {type(value).__name__}")
    return value

"""Dataclasses from JSON that anybody may have written: the declared types, or nothing."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

Convert = Callable[[Any], Any]


class NotThisRecord(ValueError):
    """The JSON value is not what the dataclass declares."""


def decode[T](kind: type[T], value: object) -> T:
    """An instance of the dataclass `kind` from a JSON object. Raises NotThisRecord.

    Field types: int, float, bool, str, None, unions of these, tuple[X, ...], list[X], dict[str, X] and dataclasses.
    An int is taken for a float; a bool is no int; NaN and infinities are refused.
    """
    return _of_dataclass(kind)(value)


@cache
def _of_dataclass(kind: type[Any]) -> Convert:
    """Made once for each type: a cache of a large run holds tens of thousands of records."""
    hints = get_type_hints(kind)
    fields = {field.name: _converter(hints[field.name]) for field in dataclasses.fields(kind)}

    def convert(value: Any) -> Any:
        if not isinstance(value, dict) or cast(dict[str, Any], value).keys() != fields.keys():
            raise NotThisRecord(f"no {kind.__name__}")
        return kind(**{name: of_field(value[name]) for name, of_field in fields.items()})

    return convert


def _converter(hint: Any) -> Convert:
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return _of_union([(part is NoneType, _converter(part)) for part in get_args(hint)])
    if origin in (tuple, list):
        return _of_sequence(cast(type[Any], origin), _converter(get_args(hint)[0]))
    if origin is dict:
        return _of_dict(_converter(get_args(hint)[1]))
    return _of_dataclass(hint) if dataclasses.is_dataclass(hint) else _SCALARS[hint]


def _of_union(parts: list[tuple[bool, Convert]]) -> Convert:
    def convert(value: Any) -> Any:
        for is_none, of_part in parts:
            if is_none != (value is None):
                continue
            try:
                return of_part(value)
            except NotThisRecord:
                continue
        raise NotThisRecord("none of the declared types")

    return convert


def _of_sequence(kind: type[Any], of_part: Convert) -> Convert:
    def convert(value: Any) -> Any:
        if not isinstance(value, list):
            raise NotThisRecord("no list")
        return kind([of_part(part) for part in cast(list[Any], value)])

    return convert


def _of_dict(of_part: Convert) -> Convert:
    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            raise NotThisRecord("no object")
        return {key: of_part(part) for key, part in cast(dict[str, Any], value).items()}

    return convert


def _exactly(kind: type[Any]) -> Convert:
    def convert(value: Any) -> Any:
        if type(value) is not kind:
            raise NotThisRecord(f"{kind.__name__} from {type(value).__name__}")
        return value

    return convert


def _finite(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise NotThisRecord("no finite number")
    return float(value)


_SCALARS: dict[Any, Convert] = {**{kind: _exactly(kind) for kind in (int, str, bool, NoneType)}, float: _finite}

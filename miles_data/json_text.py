"""JSON text to objects and back, at the speed of orjson and with the care of the standard library.

orjson alone would change data without a word: an integer beyond 64 bits becomes a float, all but the last of equal keys
go away, NaN is written as null. A row in which one of these is possible is read a second time, exactly.
"""

import json
from collections.abc import Iterable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, NoReturn, cast

import orjson

from miles_data.findings import BadRow
from miles_data.rows import JsonObject

# A float as large as this may be an integer that orjson could not hold.
_LARGE = 9.2e18
_ESCAPED_QUOTE = b"\\u0022"
_NO_JSON_NUMBER = "not a JSON number"
_NULL_OR_NOTHING = "use null or leave the field out"


def parse_line(line: bytes) -> JsonObject:
    """The object of one line. Raises BadRow for anything else: broken text or JSON, NaN, an array, a number."""
    try:
        value: object = orjson.loads(line)
        if isinstance(value, dict) and not _may_differ(line, cast(JsonObject, value)):
            return cast(JsonObject, value)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        pass  # the exact parser below says what is wrong, or reads it
    return _parse_exactly(line)


def _may_differ(line: bytes, fields: JsonObject) -> bool:
    """Whether orjson may have lost something of the line.

    A dropped key takes its quotes along, so the text written again has fewer of them.
    """
    if has_unusual_float(fields.values()) or _ESCAPED_QUOTE in line:
        return True
    return line.count(b'"') != orjson.dumps(fields).count(b'"')


def has_unusual_float(values: Iterable[object]) -> bool:
    """Whether any float in the values, at any depth, is NaN, infinite, or of the size of integers beyond 64 bits."""
    waiting: list[Iterable[object]] = [values]
    while waiting:
        items = waiting.pop()
        kinds = set(map(type, items))
        if float in kinds and not all(-_LARGE < item < _LARGE for item in items if isinstance(item, float)):
            return True
        if not kinds.isdisjoint((dict, list, tuple)):
            for item in items:
                if isinstance(item, dict):
                    waiting.append(cast(JsonObject, item).values())
                elif isinstance(item, (list, tuple)):
                    waiting.append(cast(list[object], item))
    return False


def _refuse_constant(name: str) -> NoReturn:
    raise BadRow(_NO_JSON_NUMBER, f"{name} is not valid JSON; {_NULL_OR_NOTHING}")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise BadRow(_NO_JSON_NUMBER, f"{text[:40]} is larger than any float; {_NULL_OR_NOTHING}")
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> JsonObject:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise BadRow("duplicate key", f"{twice!r} comes twice in one object")
    return fields


def _parse_exactly(line: bytes) -> JsonObject:
    try:
        value: object = json.loads(
            line.decode("utf-8"), parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_unique_keys
        )
    except UnicodeDecodeError as error:
        raise BadRow("not UTF-8", f"byte {error.start} of the line: {error.reason}") from error
    except json.JSONDecodeError as error:
        raise BadRow("broken JSON", f"{error.msg} at character {error.pos + 1} of {len(error.doc)}") from error
    except ValueError as error:
        # Python refuses to read integers of more than 4300 digits.
        raise BadRow("broken JSON", str(error)) from error
    except RecursionError as error:
        raise BadRow("nested too deeply", "deeper than JSON readers go") from error
    if not isinstance(value, dict):
        raise BadRow("not an object", f"the line holds {type(value).__name__} where an object is expected")
    return cast(JsonObject, value)


def dump(value: object, sort_keys: bool = False) -> bytes:
    """Compact JSON in UTF-8; dates become ISO 8601 text. Raises BadRow where a value has no JSON form."""
    if has_unusual_float((value,)):
        _refuse_not_finite(value)
    option = orjson.OPT_PASSTHROUGH_DATETIME | (orjson.OPT_SORT_KEYS if sort_keys else 0)
    try:
        return orjson.dumps(value, default=_plain, option=option)
    except orjson.JSONEncodeError as error:
        reason = str(error)
        if "64-bit" in reason:
            return orjson.dumps(_as_fragments(value), default=_plain, option=option)
        if "surrogates" in reason:
            raise BadRow("lone surrogate", "half of a character cannot be written as UTF-8") from error
        if "ecursion" in reason:
            raise BadRow("nested too deeply", "more than 254 levels") from error
        raise BadRow("no JSON form", reason) from error


def dump_record(prompt: object, metadata: JsonObject) -> bytes:
    """One line of Miles JSONL with its line feed. Raises BadRow as `dump`."""
    return dump({"prompt": prompt, "metadata": metadata}) + b"\n"


def _plain(value: object) -> object:
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, Decimal) and value.is_finite():
        return orjson.Fragment(format(value, "f"))
    raise TypeError(f"a value of type {type(value).__name__}")


def _refuse_not_finite(value: object) -> None:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        raise BadRow(_NO_JSON_NUMBER, f"{value} is not valid JSON; {_NULL_OR_NOTHING}")
    if isinstance(value, dict):
        for item in cast(JsonObject, value).values():
            _refuse_not_finite(item)
    elif isinstance(value, (list, tuple)):
        for item in cast(list[object], value):
            _refuse_not_finite(item)


def _as_fragments(value: object) -> object:
    """The value with integers beyond 64 bits as the text that orjson copies instead of refusing."""
    if isinstance(value, dict):
        return {key: _as_fragments(item) for key, item in cast(JsonObject, value).items()}
    if isinstance(value, (list, tuple)):
        return [_as_fragments(item) for item in cast(list[object], value)]
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return orjson.Fragment(str(value))
    return value

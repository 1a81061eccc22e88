"""JSON text to objects and back, at the speed of orjson and with the care of the standard library.

orjson changes some data without a word: an integer beyond 64 bits becomes a float, all but the last of equal keys go
away, NaN is written as null. So the text of a row is kept as it is where that is possible, and where a row must be
written anew and one of these could have happened, it is read a second time, exactly.
"""

import json
from collections.abc import Callable, Iterable
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


def parse_line(line: bytes | memoryview) -> JsonObject:
    """The object of one line, as orjson sees it. Raises BadRow for all else: broken text or JSON, NaN, an array."""
    try:
        value: object = orjson.loads(line)
    except orjson.JSONDecodeError:
        value = _parse_exactly(bytes(line))  # says what is wrong
        dump(value)  # and this where Python reads what cannot be written: half of a surrogate pair
    if not isinstance(value, dict):
        raise BadRow("not an object", f"there is {type(value).__name__} where an object is expected")
    fields = cast(JsonObject, value)
    for item in fields.values():
        kind = cast(type[object], type(item))
        if kind is dict or (kind is list and _is_more_than_text(cast(list[object], item))):
            _encode(cast(object, item), 0)  # what cannot be written again is too deep for other readers as well
    return fields


def _is_more_than_text(items: list[object]) -> bool:
    """False for a list that begins and ends with text: one of names, the usual case, is not looked into."""
    return bool(items) and not type(items[0]) is type(items[-1]) is str


def parse_numbers_exactly(line: bytes) -> JsonObject:
    """As `parse_line`, with integers of any size. Of equal keys the last counts, as for every reader."""
    fields = parse_line(line)
    return cast(JsonObject, _parse_exactly(line)) if has_unusual_float(fields.values()) else fields


def exact_fields(line: bytes, fields: JsonObject) -> JsonObject:
    """`fields` as `parse_line` gave them, with nothing lost. Raises BadRow where a key comes twice in one object."""
    # A dropped key takes its quotes along, so the text written again has fewer of them.
    if _ESCAPED_QUOTE in line or has_unusual_float(fields.values()) or line.count(b'"') != dump(fields).count(b'"'):
        return cast(JsonObject, _parse_exactly(line, _unique_keys))
    return fields


def one_line(text: bytes) -> bytes:
    """Valid JSON text without line ends, which can only stand between its parts."""
    text = text.strip()
    return text.replace(b"\n", b" ").replace(b"\r", b" ") if b"\n" in text or b"\r" in text else text


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


def _parse_exactly(line: bytes, pairs_hook: Callable[[list[tuple[str, Any]]], object] | None = None) -> object:
    try:
        text = line.decode("utf-8")
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=pairs_hook)
    except UnicodeDecodeError as error:
        raise BadRow("not UTF-8", f"byte {error.start} of the line: {error.reason}") from error
    except json.JSONDecodeError as error:
        raise BadRow("broken JSON", f"{error.msg} at character {error.pos + 1} of {len(error.doc)}") from error
    except ValueError as error:
        # Python refuses to read integers of more than 4300 digits.
        raise BadRow("broken JSON", str(error)) from error
    except RecursionError as error:
        raise BadRow("nested too deeply", "deeper than JSON readers go") from error


def dump(value: object, sort_keys: bool = False) -> bytes:
    """Compact JSON in UTF-8; dates become ISO 8601 text. Raises BadRow where a value has no JSON form."""
    if has_unusual_float((value,)):
        _refuse_not_finite(value)
    return _encode(value, orjson.OPT_SORT_KEYS if sort_keys else 0)


def _encode(value: object, option: int) -> bytes:
    option |= orjson.OPT_PASSTHROUGH_DATETIME
    try:
        return orjson.dumps(value, default=_plain, option=option)
    except orjson.JSONEncodeError as error:
        reason = str(error)
        if "64-bit" in reason:
            return _encode(_as_fragments(value), option)
        if "surrogates" in reason:
            raise BadRow("lone surrogate", "half of a character cannot be written as UTF-8") from error
        if "ecursion" in reason:
            raise BadRow("nested too deeply", "more than 254 levels") from error
        raise BadRow("no JSON form", reason) from error


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

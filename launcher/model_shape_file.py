"""`--model-shape`: a model of the recipe's architecture in other sizes, as a JSON file of `ModelShape` fields."""

from __future__ import annotations

import dataclasses
from typing import Any, cast, get_type_hints

from launcher.checks.json_object import is_process_text
from launcher.errors import OptionsError
from launcher.miles.argument_changes import SPOKEN_FOR
from launcher.model_shape import ModelShape
from launcher.option_file import read_option_file
from launcher.secrets import shown_name, validate_no_credentials, validate_no_secret

_OPTION = "--model-shape"
_MOST = 10**9
_MAY_BE_ZERO = frozenset({"dense_layers", "shared_experts", "mtp_layers"})


def shape_from(path: str | None, recipe: ModelShape) -> ModelShape:
    """The recipe's own shape, or the one that the file makes of it: fields that it leaves out stay as they are.

    Raises OptionsError naming the field: unknown, of the wrong type, or a size that no model has.
    """
    if path is None:
        return recipe
    fields = read_option_file(_OPTION, path)
    known = [field.name for field in dataclasses.fields(ModelShape)]
    if unknown := sorted(set(fields) - set(known)):
        names = ", ".join(map(shown_name, unknown))
        raise OptionsError(f"{_OPTION} {path}: {names} is no size of a model; known: {', '.join(known)}")
    if not isinstance(fields.get("name"), str) or fields["name"] == recipe.name:
        raise OptionsError(f"{_OPTION} {path}: give the model a name of its own, another than {recipe.name}")
    shape = dataclasses.replace(recipe, **{name: _value(path, name, value) for name, value in fields.items()})
    validate_sizes(path, shape)
    return shape


def validate_sizes(path: str, shape: ModelShape) -> None:
    """Raises OptionsError for sizes that cannot be those of one model."""
    if shape.top_k > shape.experts:
        raise OptionsError(
            f"{_OPTION} {path}: top_k {shape.top_k} of {shape.experts} experts; a token goes to no more than there are"
        )
    if shape.vocabulary % shape.vocabulary_divisor:
        raise OptionsError(
            f"{_OPTION} {path}: vocabulary {shape.vocabulary} is no multiple of vocabulary_divisor "
            f"{shape.vocabulary_divisor}; the checkpoint's rows would not be the trainer's"
        )


def _value(path: str, name: str, value: object) -> Any:
    hint = get_type_hints(ModelShape)[name]
    if name == "own_arguments":
        if not isinstance(value, list) or not all(map(is_process_text, cast(list[object], value))):
            raise OptionsError(f"{_OPTION} {path}: own_arguments must be a list of strings, flag and value apart")
        arguments = tuple(cast(list[str], value))
        validate_no_credentials(_OPTION, arguments)
        validate_no_secret(f"{_OPTION} {path}", arguments)
        if arguments and not arguments[0].startswith("--"):
            first = shown_name(arguments[0])
            raise OptionsError(f"{_OPTION} {path}: own_arguments must begin with a flag, not {first!r}")
        flags = [item.partition("=")[0] for item in arguments if item.startswith("--")]
        if odd := next((flag for flag in flags if any(map(str.isspace, flag))), None):
            raise OptionsError(f"{_OPTION} {path}: own_arguments: a value stands apart from {shown_name(odd)!r}")
        if spoken_for := next((flag for flag in flags if flag in SPOKEN_FOR), None):
            raise OptionsError(f"{_OPTION} {path}: {spoken_for} follows from {SPOKEN_FOR[spoken_for]}; leave it out")
        return arguments
    if name == "model_type":
        if value is not None and not isinstance(value, str):
            raise OptionsError(f"{_OPTION} {path}: model_type must be a string or null, not {value!r:.40}")
        return value
    if hint is str:
        if not isinstance(value, str) or not value:
            raise OptionsError(f"{_OPTION} {path}: {name} must be a string, not {value!r:.40}")
        return value
    return _number(path, name, value, whole=hint is int)


def _number(path: str, name: str, value: object, *, whole: bool) -> int | float:
    fits = type(value) is int or (not whole and type(value) is float)
    least = 0 if name in _MAY_BE_ZERO else 1 if whole else 0
    if not fits or not least <= cast(float, value) <= _MOST or (not whole and value == 0):
        kind = f"a whole number of at least {least}" if whole else "a number above 0"
        kind += f", at most {_MOST:,}"
        raise OptionsError(f"{_OPTION} {path}: {name} must be {kind}, not {value!r:.40}")
    return cast(float, value)

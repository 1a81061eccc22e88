"""The rules for one row: from the fields of a source to a Miles record."""

import re
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

from miles_data.findings import BadRow
from miles_data.json_text import dump
from miles_data.rows import JsonObject

PROMPT_KEYS: Final = ("problem_statement", "instruction", "prompt")
ID_KEYS: Final = ("instance_id", "task_id", "task_name", "name", "id")
DEFAULT_AGENT: Final = "mini-swe-agent"
DEFAULT_SPLIT: Final = "train"
_LONGEST_FOLDER_NAME = 255  # bytes, on every usual file system
_USUAL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,200}")  # most names, told at once

# One rule a kind of row: what --help prints and the README shows.
RULES: Final[tuple[tuple[str, str], ...]] = (
    ("prompt", f"the field of --prompt-key, else the first that is not null of {', '.join(PROMPT_KEYS)}"),
    ("prompt missing, blank, or neither text nor a list of messages", "an error"),
    (
        "instance_id",
        f"the field of --id-key, else the first that the first row has of {', '.join(ID_KEYS)}",
    ),
    ("instance_id missing", "an error"),
    ("instance_id that cannot name a folder: `../x`, `a/b`, empty, control characters, no text", "an error"),
    ("instance_id in the row that differs from the field used as instance_id", "an error"),
    ("the same instance_id again, equal row", "kept once, counted"),
    ("the same instance_id again, other row", "an error; --on-duplicate first or last keeps that one"),
    ("a row that is {prompt, metadata} already", "taken as it is"),
    ("a metadata object of its own", "its fields move up; one that contradicts the row is an error"),
    ("an agent_name of its own", "kept, unless null or empty; one that contradicts --agent-name is an error"),
    (
        "a split of its own",
        "kept, unless null or empty; with --split, rows of another are left out and counted",
    ),
    ("every other field", "kept in metadata; a field named prompt only where it is not the prompt itself"),
    ("null, structs of nulls, empty lists", "kept as they are"),
    ("dates and times", "ISO 8601 text, with the zone they have"),
    ("integers of any size, decimals", "every digit kept; more than 4300 digits are an error"),
    ("NaN, Infinity, numbers beyond a float", "an error"),
    ("bytes, durations", "an error: they have no JSON form"),
    ("broken JSON or CSV, bytes that are no UTF-8, a line that is no object", "an error"),
    (
        "the same key twice in one object",
        "kept as it is (readers take the last); an error in a row with own metadata",
    ),
    ("more than 254 levels", "an error"),
    ("half of a surrogate pair", "an error"),
    ("CSV cells", "text, as they are"),
    ("blank line", "left out, counted"),
    ("byte-order mark, CRLF, no line feed at the end", "no part of the data"),
    ("U+2028, NUL and all other text", "kept"),
    ("Harbor task that is invalid or has several steps", "listed, counted, left out"),
    ("row without a folder in --tasks-dir", "an error; folders without a row are listed"),
    ("no row left", "an error, nothing is written"),
)

DESCRIPTION: Final = "\n".join(
    (
        "An error anywhere makes the whole conversion fail, names the first 20 places, counts the rest and leaves the",
        "old output as it was; --skip-bad-rows leaves such rows out and writes them to <output>.rejected.jsonl with",
        "reasons.",
        "",
        "What happens to a row:",
        *(f"- {kind}: {rule}" for kind, rule in RULES),
    )
)


def check_instance_id(value: object) -> str:
    """The value, when it can name a task folder. Raises BadRow otherwise."""
    if isinstance(value, str) and _USUAL_NAME.fullmatch(value):
        return value
    if value is None:
        raise BadRow("missing instance_id", "the row has none")
    if not isinstance(value, str):
        raise BadRow("bad instance_id", f"{value!r} is no text")
    unsafe = value in ("", ".", "..") or value.strip() != value or "/" in value or "\\" in value
    if unsafe or not value.isprintable():
        raise BadRow("bad instance_id", f"{_short(value)} cannot name a task folder")
    if len(value) > _LONGEST_FOLDER_NAME // 4 and len(value.encode("utf-8")) > _LONGEST_FOLDER_NAME:
        raise BadRow("bad instance_id", f"{_short(value)} is longer than {_LONGEST_FOLDER_NAME} bytes")
    return value


def check_prompt(value: object) -> str | list[JsonObject]:
    """The value, when it is text that is not blank or a list of chat messages. Raises BadRow otherwise."""
    if isinstance(value, str):
        if not value or value.isspace():
            raise BadRow("empty prompt", "it is blank" if value else "it has no character")
        return value
    if not isinstance(value, list):
        raise BadRow("bad prompt", f"{type(value).__name__} where text or a list of messages is expected")
    messages = cast(list[object], value)
    if not messages:
        raise BadRow("empty prompt", "the list of messages is empty")
    for number, message in enumerate(messages, 1):
        fields = cast(dict[str, object], message) if isinstance(message, dict) else dict[str, object]()
        if not isinstance(fields.get("role"), str) or "content" not in fields:
            raise BadRow("bad prompt", f"message {number} is no object with a role and a content")
    return cast(list[JsonObject], messages)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def merge_own_metadata(fields: JsonObject, own: JsonObject) -> JsonObject:
    """The fields with those of their own metadata moved up. Raises BadRow where the two contradict each other."""
    merged = {key: value for key, value in fields.items() if key != "metadata"}
    for key, value in own.items():
        # Compared as JSON: to Python 1, 1.0 and true are equal.
        if key in merged and dump(merged[key], sort_keys=True) != dump(value, sort_keys=True):
            what = f"{key} is {_short(merged[key])} in the row and {_short(value)} in its metadata"
            raise BadRow("metadata conflict", what)
        merged[key] = value
    return merged


class Chosen(NamedTuple):
    """The parts of a record that the rules decide."""

    instance_id: str
    agent_name: str
    split: str
    prompt_key: str
    prompt: str | list[JsonObject]


@dataclass
class Rules:
    """The options that decide how a row becomes a record; None means that the row decides.

    `split` selects rows, `own_split` is what those without one get. `id_key` is fixed by the first row that has one.
    """

    prompt_key: str | None = None
    agent_name: str | None = None
    split: str | None = None
    own_split: str | None = None
    id_key: str | None = None

    def choose(self, fields: JsonObject, prompt_keys: tuple[str, ...] | None = None) -> Chosen | None:
        """What the rules take from a row, or None when the row belongs to another split. Raises BadRow."""
        split = ("split" in fields and _text(fields, "split")) or self.split or self.own_split or DEFAULT_SPLIT
        if self.split is not None and split != self.split:
            return None
        instance_id = self._instance_id(fields)
        prompt_key, prompt = self._prompt(fields, prompt_keys)
        agent_name = ("agent_name" in fields and _text(fields, "agent_name")) or self.agent_name or DEFAULT_AGENT
        if self.agent_name is not None and agent_name != self.agent_name:
            raise BadRow(
                "agent_name conflict",
                f"the row says {agent_name!r}, --agent-name says {self.agent_name!r}: change one or leave out the flag",
            )
        return Chosen(instance_id, agent_name, split, prompt_key, prompt)

    def _instance_id(self, fields: JsonObject) -> str:
        if self.id_key is None:
            self.id_key = next((key for key in ID_KEYS if fields.get(key) is not None), None)
            if self.id_key is None:
                raise BadRow("missing instance_id", f"no field {' or '.join(ID_KEYS)}; {_has(fields)}")
        value = fields.get(self.id_key)
        if value is None:
            raise BadRow("missing instance_id", f"no field {self.id_key}; {_has(fields)}")
        instance_id = check_instance_id(value)
        other = fields.get("instance_id")
        if other is not None and other != instance_id:
            what = f"{self.id_key} is {instance_id!r}, instance_id is {_short(other)}; choose one with --id-key"
            raise BadRow("instance_id conflict", what)
        return instance_id

    def _prompt(self, fields: JsonObject, keys: tuple[str, ...] | None) -> tuple[str, str | list[JsonObject]]:
        keys = keys or ((self.prompt_key,) if self.prompt_key is not None else PROMPT_KEYS)
        for key in keys:
            if fields.get(key) is not None:
                return key, check_prompt(fields[key])
        raise BadRow("missing prompt", f"no field {' or '.join(keys)}; {_has(fields)}")


def _has(fields: JsonObject) -> str:
    return f"the row has {_short(', '.join(sorted(fields)))[1:-1] or 'none'}"


def _text(fields: JsonObject, key: str) -> str | None:
    value = fields.get(key)
    if value is None or isinstance(value, str):
        return value
    raise BadRow(f"bad {key}", f"{_short(value)} is no text")

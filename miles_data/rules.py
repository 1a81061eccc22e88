"""The rules for one row: from the fields of a source to a Miles record."""

from dataclasses import dataclass
from typing import Any, cast

from miles_data.findings import BadRow
from miles_data.rows import JsonObject

DESCRIPTION = """\
What happens to a row:
- prompt: the field of --prompt-key, else the first there is of problem_statement, instruction, prompt
- prompt missing, blank, or neither text nor a list of messages: an error
- instance_id missing, or not usable as the name of a folder: an error
- the same instance_id again: kept once if the rows are equal, else an error
- a metadata object of its own: its fields move up; one that contradicts the row is an error
- an agent_name of its own: kept; one that contradicts --agent-name is an error
- a split of its own: kept; with --split, rows of another split are left out and counted
- broken JSON, NaN, Infinity, a line that is no object, half of a surrogate pair: an error
- a blank line: left out and counted
- a date: ISO 8601 text
- every other field: kept in metadata as it is"""

PROMPT_KEYS = ("problem_statement", "instruction", "prompt")
DEFAULT_AGENT = "mini-swe-agent"
DEFAULT_SPLIT = "train"
_LONGEST_FOLDER_NAME = 255  # bytes, on every usual file system


def check_instance_id(value: object) -> str:
    """The value, when it can name a task folder. Raises BadRow otherwise."""
    if value is None:
        raise BadRow("missing instance_id", "the row has none")
    if not isinstance(value, str):
        raise BadRow("bad instance_id", f"{value!r} is no text")
    unsafe = value in ("", ".", "..") or value.strip() != value or any(sign in value for sign in "/\\")
    if unsafe or not value.isprintable():
        raise BadRow("bad instance_id", f"{value!r} cannot name a task folder")
    if len(value.encode("utf-8")) > _LONGEST_FOLDER_NAME:
        raise BadRow("bad instance_id", f"{value[:40]!r}... is longer than {_LONGEST_FOLDER_NAME} bytes")
    return value


def check_prompt(value: object) -> str | list[JsonObject]:
    """The value, when it is text that is not blank or a list of chat messages. Raises BadRow otherwise."""
    if isinstance(value, str):
        if not value.strip():
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


def _merge_own_metadata(fields: JsonObject) -> JsonObject:
    own = fields.get("metadata")
    if not isinstance(own, dict):
        return dict(fields)
    merged = {key: value for key, value in fields.items() if key != "metadata"}
    for key, value in cast(dict[str, Any], own).items():
        if key in merged and merged[key] != value:
            raise BadRow("metadata conflict", f"{key} is {merged[key]!r} in the row and {value!r} in its metadata")
        merged[key] = value
    return merged


@dataclass(frozen=True)
class Rules:
    """The options that decide how a row becomes a record; None means that the row decides."""

    prompt_key: str | None = None
    agent_name: str | None = None
    split: str | None = None

    def record(self, fields: JsonObject) -> JsonObject | None:
        """`{"prompt", "metadata"}` of a row, or None when the row belongs to another split. Raises BadRow."""
        merged = _merge_own_metadata(fields)
        split = self._text(merged, "split") or self.split or DEFAULT_SPLIT
        if self.split is not None and split != self.split:
            return None
        instance_id = check_instance_id(merged.pop("instance_id", None))
        prompt = self._prompt(merged)
        agent_name = self._text(merged, "agent_name") or self.agent_name or DEFAULT_AGENT
        if self.agent_name is not None and agent_name != self.agent_name:
            raise BadRow(
                "agent_name conflict",
                f"the row says {agent_name!r}, --agent-name says {self.agent_name!r}: change one or leave out the flag",
            )
        # A field named `prompt` stands beside the metadata already.
        rest = {key: value for key, value in merged.items() if key not in ("prompt", "agent_name", "split")}
        return {
            "prompt": prompt,
            "metadata": {"instance_id": instance_id, "agent_name": agent_name, "split": split, **rest},
        }

    def _prompt(self, fields: JsonObject) -> str | list[JsonObject]:
        keys = (self.prompt_key,) if self.prompt_key is not None else PROMPT_KEYS
        for key in keys:
            if fields.get(key) is not None:
                return check_prompt(fields[key])
        raise BadRow(
            "missing prompt", f"no field {' or '.join(keys)}; the row has {', '.join(sorted(fields)) or 'none'}"
        )

    @staticmethod
    def _text(fields: JsonObject, key: str) -> str | None:
        value = fields.get(key)
        if value is None or isinstance(value, str):
            return value
        raise BadRow(f"bad {key}", f"{value!r} is no text")

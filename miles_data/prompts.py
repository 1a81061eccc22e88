"""Miles JSONL read back: what the launchers check before a run and what the local engine trains on."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from miles_data.findings import BadRow, BadRows, DataError, Finding, Findings
from miles_data.input_file import open_input
from miles_data.json_lines import numbered_lines
from miles_data.json_text import parse_numbers_exactly
from miles_data.rows import JsonObject, Meter
from miles_data.rules import check_instance_id, check_prompt

HELDOUT_SPLIT: Final = "test"


@dataclass(frozen=True)
class Prompt:
    """One record. `prompt` is text or a list of chat messages; `line` counts from 1."""

    prompt: str | list[JsonObject]
    metadata: JsonObject
    line: int

    @property
    def instance_id(self) -> str:
        return str(self.metadata["instance_id"])

    @property
    def held_out(self) -> bool:
        """Evaluated and not trained on, by the local engine; Miles trains on every row of its prompt data."""
        return self.metadata.get("split") == HELDOUT_SPLIT


def parse_prompt(line: bytes, number: int) -> Prompt:
    """One line of Miles JSONL. Raises BadRow when it is no record."""
    record = parse_numbers_exactly(line)
    metadata: object = record.get("metadata")
    if not isinstance(metadata, dict):
        raise BadRow("missing metadata", "the record has no metadata object")
    fields = cast(JsonObject, metadata)
    check_instance_id(fields.get("instance_id"))
    return Prompt(check_prompt(record.get("prompt")), fields, number)


def read_prompts(path: Path, meter: Meter | None = None) -> Iterator[Prompt | Finding]:
    """Every line of a Miles JSONL file but the blank ones: its record, or what is wrong with it. Raises OSError."""
    lines: dict[str, int] = {}
    with open_input(path, meter) as file:
        for number, line in numbered_lines(file):
            if not line or line.isspace():
                continue
            try:
                prompt = parse_prompt(line, number)
                first = lines.setdefault(prompt.instance_id, number)
                if first != number:
                    raise BadRow("duplicate instance_id", f"{prompt.instance_id!r} is on line {first} already")
            except BadRow as bad:
                yield bad.at(f"line {number}")
            else:
                yield prompt


def load_prompts(path: Path) -> list[Prompt]:
    """All records of a Miles JSONL file, in its order; blank lines are left out.

    Raises BadRows with line numbers when any line is no record or an instance_id comes twice, and DataError when the
    file cannot be read or holds no record.
    """
    prompts: list[Prompt] = []
    findings = Findings()
    try:
        for item in read_prompts(path):
            if isinstance(item, Prompt):
                prompts.append(item)
            else:
                findings.add(item)
    except OSError as error:
        raise DataError(f"cannot read the prompt data {path}: {error.strerror}") from error
    if findings.total:
        raise BadRows(f"{findings.total} lines of {path} are no records for Miles:", findings)
    if not prompts:
        raise DataError(f"the prompt data {path} holds no record")
    return prompts

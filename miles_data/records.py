"""From a row of a source to a line of Miles JSONL.

Where the row is JSON text, that text becomes the metadata as it stands: no number, escape or order of keys changes, and
nothing is encoded twice. Only rows of which something must be taken away or merged are written anew.
"""

from dataclasses import dataclass
from functools import lru_cache

import orjson

from miles_data.findings import BadRow
from miles_data.json_text import dump, exact_fields
from miles_data.rows import Broken, Item, JsonObject, Row, RowAt, Skipped
from miles_data.rules import Chosen, Rules, merge_own_metadata

_DECIDED = ("instance_id", "agent_name", "split")


@dataclass(slots=True)
class Record:
    """A line of Miles JSONL with its line feed, in pieces: most of it is the row's own text, which is not copied.

    Of a prompt that nobody wants to see, only the number of its characters is kept.
    """

    instance_id: str
    prompt: str | list[JsonObject] | int
    line: tuple[bytes | memoryview, ...]
    row: Row | RowAt

    @property
    def size(self) -> int:
        """Of the line, in bytes."""
        return sum(map(len, self.line))


Outcome = Record | Broken | Skipped


def outcome_of(item: Item, rules: Rules) -> Outcome:
    """What becomes of something that a source yields."""
    if not isinstance(item, Row):
        return item
    try:
        return record_of(item, rules) or Skipped(item.place, "another split")
    except BadRow as bad:
        return Broken(bad.at(item.place), bytes(item.text), item.fields)


def record_of(row: Row, rules: Rules) -> Record | None:
    """None for a row of another split. Raises BadRow."""
    fields = row.fields
    if isinstance(fields.get("metadata"), dict):
        is_record = len(fields) == 2 and fields.get("prompt") is not None and rules.prompt_key in (None, "prompt")
        return _from_record(row, rules) if is_record else _merged(row, rules)
    chosen = rules.choose(fields)
    if chosen is None:
        return None
    if row.text and chosen.prompt_key != "prompt" and isinstance(chosen.prompt, str):
        start = _start(chosen, fields)
        if start is not None:
            head = b"".join((b'{"prompt":', orjson.dumps(chosen.prompt), b',"metadata":', start))
            return Record(chosen.instance_id, chosen.prompt, (head, _inside(row.text), b"}}\n"), row)
    exact = exact_fields(bytes(row.text), fields) if row.text else fields
    return _written(row, chosen._replace(prompt=exact[chosen.prompt_key]), exact)


def _start(chosen: Chosen, fields: JsonObject) -> bytes | None:
    """The metadata's text up to the row's own first key; None where something in the row would have to change."""
    if "agent_name" not in fields and "split" not in fields and fields.get("instance_id"):
        return _usual_start(chosen.agent_name, chosen.split)
    if not all(fields.get(name, True) for name in _DECIDED):
        return None
    missing = tuple(name for name in _DECIDED if name not in fields)
    return orjson.dumps({name: getattr(chosen, name) for name in missing})[:-1] + (b"," if missing else b"")


def _inside(text: bytes | memoryview) -> memoryview:
    """The text of an object without its braces and what follows them."""
    usual = bytes(text[-2:]) == b"}\n"
    return memoryview(text)[1 : len(text) - 2 if usual else bytes(text).rindex(b"}")]


@lru_cache(maxsize=64)
def _usual_start(agent_name: str, split: str) -> bytes:
    return orjson.dumps({"agent_name": agent_name, "split": split})[:-1] + b","


def _from_record(row: Row, rules: Rules) -> Record | None:
    """A row that is {prompt, metadata}: whatever other texts its metadata holds, its prompt is the prompt."""
    metadata: JsonObject = row.fields["metadata"]
    chosen = rules.choose({**metadata, "prompt": row.fields["prompt"]}, prompt_keys=("prompt",))
    if chosen is None:
        return None
    if row.text and _start(chosen, metadata) == b"{":
        return Record(chosen.instance_id, chosen.prompt, (b"{", _inside(row.text), b"}\n"), row)
    exact = exact_fields(bytes(row.text), row.fields) if row.text else row.fields
    return _written(row, chosen._replace(prompt_key="", prompt=exact["prompt"]), exact["metadata"])


def _merged(row: Row, rules: Rules) -> Record | None:
    fields = exact_fields(bytes(row.text), row.fields) if row.text else row.fields
    fields = merge_own_metadata(fields, fields["metadata"])
    chosen = rules.choose(fields)
    return None if chosen is None else _written(row, chosen, fields)


def _written(row: Row, chosen: Chosen, fields: JsonObject) -> Record:
    metadata: JsonObject = dict(zip(_DECIDED, chosen, strict=False))
    metadata |= {name: value for name, value in fields.items() if name not in metadata}
    if chosen.prompt_key == "prompt":
        del metadata["prompt"]
    line = dump({"prompt": chosen.prompt, "metadata": metadata}) + b"\n"
    return Record(chosen.instance_id, chosen.prompt, (line,), row)

"""From a row of a source to a line of Miles JSONL.

Where the row is JSON text, that text becomes the metadata as it stands: no number, escape or order of keys changes, and
nothing is encoded twice. Only rows of which something must be taken away or merged are written anew.
"""

from functools import lru_cache

import orjson

from miles_data.json_text import dump, exact_fields
from miles_data.rows import JsonObject, Row
from miles_data.rules import Chosen, Rules, merge_own_metadata

_DECIDED = ("instance_id", "agent_name", "split")
_USUALLY_MISSING = _DECIDED[1:]

Record = tuple[str, str | list[JsonObject], bytes]


def record_of(row: Row, rules: Rules) -> Record | None:
    """instance_id, prompt and the line with its line feed; None for a row of another split. Raises BadRow."""
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
            rest = memoryview(row.text)[1 : row.text.rindex(b"}")]
            line = b"".join((b'{"prompt":', orjson.dumps(chosen.prompt), b',"metadata":', start, rest, b"}}\n"))
            return chosen.instance_id, chosen.prompt, line
    exact = exact_fields(row.text, fields) if row.text else fields
    return _written(chosen._replace(prompt=exact[chosen.prompt_key]), exact)


def _start(chosen: Chosen, fields: JsonObject) -> bytes | None:
    """The metadata's text up to the row's own first key; None where something in the row would have to change."""
    missing = tuple(name for name in _DECIDED if name not in fields)
    if not all(fields.get(name, True) for name in _DECIDED):
        return None
    if missing == _USUALLY_MISSING:
        return _usual_start(chosen.agent_name, chosen.split)
    return orjson.dumps({name: getattr(chosen, name) for name in missing})[:-1] + (b"," if missing else b"")


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
        return chosen.instance_id, chosen.prompt, row.text.rstrip() + b"\n"
    exact = exact_fields(row.text, row.fields) if row.text else row.fields
    return _written(chosen._replace(prompt_key="", prompt=exact["prompt"]), exact["metadata"])


def _merged(row: Row, rules: Rules) -> Record | None:
    fields = exact_fields(row.text, row.fields) if row.text else row.fields
    fields = merge_own_metadata(fields, fields["metadata"])
    chosen = rules.choose(fields)
    return None if chosen is None else _written(chosen, fields)


def _written(chosen: Chosen, fields: JsonObject) -> Record:
    metadata: JsonObject = dict(zip(_DECIDED, chosen, strict=False))
    metadata |= {name: value for name, value in fields.items() if name not in metadata}
    if chosen.prompt_key == "prompt":
        del metadata["prompt"]
    return chosen.instance_id, chosen.prompt, dump({"prompt": chosen.prompt, "metadata": metadata}) + b"\n"

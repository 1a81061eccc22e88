"""From a row of a source to a line of Miles JSONL.

Where the row is JSON text, that text becomes the metadata as it stands: no number, escape or order of keys changes, and
nothing is encoded twice. Only rows of which something must be taken away or merged are written anew.
"""

import orjson

from miles_data.json_text import dump, exact_fields
from miles_data.rows import JsonObject, Row
from miles_data.rules import Chosen, Rules, merge_own_metadata

_DECIDED = Chosen._fields[:3]

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
    instance_id, _, _, prompt_key, prompt = chosen
    if row.text and prompt_key != "prompt" and isinstance(prompt, str):
        added = _added(chosen, fields)
        if added is not None:
            start = orjson.dumps(added)[:-1] + b"," if added else b"{"
            parts = (b'{"prompt":', orjson.dumps(prompt), b',"metadata":', start, row.text[1:], b"}\n")
            return instance_id, prompt, b"".join(parts)
    exact = exact_fields(row.text, fields) if row.text else fields
    return _written(chosen._replace(prompt=exact[prompt_key]), exact)


def _added(chosen: Chosen, fields: JsonObject) -> JsonObject | None:
    """What must be added to the row's fields; None where something there would have to change."""
    added: JsonObject = {}
    for name, value in zip(_DECIDED, chosen, strict=False):
        if name not in fields:
            added[name] = value
        elif fields[name] is None:
            return None
    return added


def _from_record(row: Row, rules: Rules) -> Record | None:
    """A row that is {prompt, metadata}: whatever other texts its metadata holds, its prompt is the prompt."""
    metadata: JsonObject = row.fields["metadata"]
    chosen = rules.choose({**metadata, "prompt": row.fields["prompt"]}, prompt_keys=("prompt",))
    if chosen is None:
        return None
    if row.text and _added(chosen, metadata) == {}:
        return chosen.instance_id, chosen.prompt, row.text + b"\n"
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

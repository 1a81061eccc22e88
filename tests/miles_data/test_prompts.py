"""Reading Miles JSONL back: every bad line is named before a run starts."""

import json
from pathlib import Path

import pytest

from miles_data.findings import BadRows, DataError
from miles_data.prompts import load_prompts


def record(instance_id: str, prompt: object = "Do it.") -> str:
    return json.dumps({"prompt": prompt, "metadata": {"instance_id": instance_id, "agent_name": "shell"}})


def test_records_come_back_in_order_with_their_lines(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "hi"}]
    path = tmp_path / "data.jsonl"
    path.write_text(f"{record('a')}\n\n{record('b', chat)}")
    first, second = load_prompts(path)
    assert (first.prompt, first.instance_id, first.line) == ("Do it.", "a", 1)
    assert (second.prompt, second.instance_id, second.line) == (chat, "b", 3)
    assert first.metadata["agent_name"] == "shell"


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (record("a"), "duplicate instance_id: 'a' is on line 1 already"),
        (record("../x"), "bad instance_id"),
        (record("b", ""), "empty prompt"),
        ('{"prompt": "x"}', "missing metadata"),
        ('{"prompt": "x", "metadata": {}}', "missing instance_id"),
        ('{"prompt": "x", "meta', "broken JSON"),
    ],
)
def test_a_bad_line_is_named(bad: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text(f"{record('a')}\n{bad}\n")
    with pytest.raises(BadRows, match=f"line 2: {message}"):
        load_prompts(path)


def test_no_file_and_no_record_are_errors(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read"):
        load_prompts(tmp_path / "nothing.jsonl")
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(DataError, match="no record"):
        load_prompts(tmp_path / "empty.jsonl")

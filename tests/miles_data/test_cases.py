"""Situations that real data sets hold, each with the rule that applies."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from miles_data.findings import BadRows
from tests.miles_data.rows_on_disk import ids, metadata, records, run, write

X = {"problem_statement": "x"}


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        ({"instance_id": "a-1", "problem_statement": ""}, "empty prompt"),
        ({"instance_id": "a-1", "problem_statement": "  \n"}, "empty prompt"),
        ({"instance_id": "a-1"}, "missing prompt"),
        (X, "missing instance_id"),
        *((X | {"instance_id": bad}, "bad instance_id") for bad in ("../x", "a/b", "..", "", "a\0b")),
        (X | {"instance_id": "a-1", "metadata": {"instance_id": "other"}}, "metadata conflict"),
    ],
)
def test_a_row_that_breaks_a_rule_is_named(row: dict[str, Any], rule: str, tmp_path: Path) -> None:
    with pytest.raises(BadRows) as raised:
        run(write(tmp_path / "in.jsonl", row), tmp_path / "out.jsonl")
    assert [(item.place, item.rule) for item in raised.value.findings.shown] == [("line 1", rule)]


def test_the_same_row_twice_is_kept_once_and_a_third_with_another_statement_is_refused(tmp_path: Path) -> None:
    row = X | {"instance_id": "a-1"}
    assert run(write(tmp_path / "in.jsonl", row, row), tmp_path / "out.jsonl").written == 1
    with pytest.raises(BadRows, match=r"line 3: duplicate instance_id: .* another content \(prompt\)"):
        run(write(tmp_path / "in.jsonl", row, row, row | {"problem_statement": "y"}), tmp_path / "out.jsonl")


def test_a_date_stays_iso_8601_text_from_json_lines_and_from_a_parquet_timestamp(tmp_path: Path) -> None:
    row = X | {"instance_id": "a-1", "created_at": "2024-02-03T04:05:06+00:00"}
    write(tmp_path / "in.jsonl", row)
    table = pa.Table.from_pylist([row])
    moment = table["created_at"].cast(pa.timestamp("ms", "UTC"))
    pq.write_table(table.set_column(2, "created_at", moment), tmp_path / "in.parquet")
    for name in ("in.jsonl", "in.parquet"):
        run(tmp_path / name, tmp_path / "out.jsonl")
        assert metadata(tmp_path / "out.jsonl")[0]["created_at"] == "2024-02-03T04:05:06+00:00"


def test_a_test_list_is_kept_as_text_or_as_a_list(tmp_path: Path) -> None:
    rows = [X | {"instance_id": f"a-{n}", "FAIL_TO_PASS": tests} for n, tests in enumerate(['["t::a"]', ["t::a"]])]
    run(write(tmp_path / "in.jsonl", *rows), tmp_path / "out.jsonl")
    assert [fields["FAIL_TO_PASS"] for fields in metadata(tmp_path / "out.jsonl")] == ['["t::a"]', ["t::a"]]


def test_terminal_bench_rows_and_message_lists(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "hi"}]
    source = write(tmp_path / "in.jsonl", {"task_name": "hello-world", "instruction": "..."})
    run(source, tmp_path / "out.jsonl", id_key="task_name")
    assert ids(tmp_path / "out.jsonl") == ["hello-world"]
    run(write(tmp_path / "in.jsonl", {"instance_id": "a-1", "prompt": chat}), tmp_path / "out.jsonl")
    assert records(tmp_path / "out.jsonl")[0]["prompt"] == chat


def test_a_file_with_every_kind_of_line_end_and_a_cut_line(tmp_path: Path) -> None:
    lines = [json.dumps(X | {"instance_id": f"a-{number}"}).encode() for number in range(1, 9)]
    lines[6] = lines[6][:30]
    source = tmp_path / "in.jsonl"
    source.write_bytes(b"\xef\xbb\xbf" + b"\r\n".join(lines[:4]) + b"\r\n" + b"\n".join(lines[4:]))
    with pytest.raises(BadRows) as raised:
        run(source, tmp_path / "out.jsonl")
    assert [(item.place, item.rule) for item in raised.value.findings.shown] == [("line 7", "broken JSON")]
    report = run(source, tmp_path / "out.jsonl", skip_bad_rows=True)
    assert ids(tmp_path / "out.jsonl") == ["a-1", "a-2", "a-3", "a-4", "a-5", "a-6", "a-8"]
    assert report.rejected.counts == {"broken JSON": 1}


def test_an_array_in_a_json_file(tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text(json.dumps([X | {"instance_id": "a-1"}, X | {"instance_id": "a-2"}]))
    run(tmp_path / "in.json", tmp_path / "out.jsonl")
    assert ids(tmp_path / "out.jsonl") == ["a-1", "a-2"]

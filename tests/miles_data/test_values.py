"""No value changes on its way: numbers, dates, text, nulls, nesting."""

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from miles_data.findings import BadRows
from tests.miles_data.rows_on_disk import GOOD, metadata, run

NUMBERS = [
    "18446744073709551616",
    "-9223372036854775809",
    "1" + "0" * 400,
    "0.1",
    "1.0",
    "-0.0",
    "1e5",
    "1.7976931348623157e308",
    "0.30000000000000004",
    "123456789.12345678901234567890",
]


def one(tmp_path: Path, text: str | bytes, **options: Any) -> dict[str, Any]:
    source = tmp_path / "in.jsonl"
    source.write_bytes(text.encode() if isinstance(text, str) else text)
    run(source, tmp_path / "out.jsonl", **options)
    return metadata(tmp_path / "out.jsonl")[0]


def parquet(tmp_path: Path, **columns: Any) -> Path:
    table = pa.table({"instance_id": ["a-1"], "problem_statement": ["x"], **columns})
    pq.write_table(table, tmp_path / "in.parquet")
    return tmp_path / "in.parquet"


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_keeps_its_digits(number: str, tmp_path: Path) -> None:
    one(tmp_path, '{"instance_id": "a-1", "problem_statement": "x", "n": [{"deep": NUMBER}]}'.replace("NUMBER", number))
    assert number in (tmp_path / "out.jsonl").read_text()


@pytest.mark.parametrize("number", NUMBERS)
def test_a_row_that_is_written_anew_reads_back_with_the_same_numbers(number: str, tmp_path: Path) -> None:
    row = '{"instance_id": "a-1", "prompt": "x", "n": [{"deep": NUMBER}], "metadata": {"m": NUMBER}}'
    fields = one(tmp_path, row.replace("NUMBER", number))
    assert fields["n"] == [{"deep": json.loads(number)}] and fields["m"] == json.loads(number)


def test_equal_keys_are_kept_as_text_and_refused_where_one_would_be_lost(tmp_path: Path) -> None:
    one(tmp_path, '{"instance_id": "a-1", "problem_statement": "x", "k": {"a": 1, "a": 2}}')
    assert '{"a": 1, "a": 2}' in (tmp_path / "out.jsonl").read_text()
    with pytest.raises(BadRows, match="line 1: duplicate key: 'a' comes twice"):
        one(tmp_path, '{"instance_id": "a-1", "prompt": "x", "k": {"a": 1, "a": 2}}')
    # Escaped quotes make up for the quotes that a dropped key takes along.
    with pytest.raises(BadRows, match="duplicate key"):
        one(tmp_path, r'{"instance_id": "a-1", "prompt": "x", "k": {"a": 1, "a": "\u0022\u0022"}}')


def test_escapes_spacing_and_a_lone_carriage_return_stay_within_one_line(tmp_path: Path) -> None:
    fields = one(tmp_path, '{"instance_id":\r"a-1" ,\t"problem_statement": "\\u00e4\\/\\ud83d\\ude00"}\r\n')
    assert fields["problem_statement"] == "ä/😀"
    assert b"\r" not in (tmp_path / "out.jsonl").read_bytes()


def test_a_row_of_tens_of_megabytes_passes(tmp_path: Path) -> None:
    fields = one(tmp_path, json.dumps(GOOD | {"log": "x\n" * 15_000_000}))
    assert len(fields["log"]) == 30_000_000


def test_deep_nesting_is_refused_before_readers_fail_on_it(tmp_path: Path) -> None:
    def row(levels: int) -> str:
        return '{"instance_id": "a-1", "problem_statement": "x", "n": %s}' % ("[" * levels + "]" * levels)

    one(tmp_path, row(200))
    for levels in (300, 100_000):
        with pytest.raises(BadRows, match="nested too deeply"):
            one(tmp_path, row(levels))


def test_timestamps_of_parquet_are_iso_8601_with_their_zone(tmp_path: Path) -> None:
    moment = datetime(2024, 2, 3, 4, 5, 6, tzinfo=UTC)
    source = parquet(
        tmp_path,
        created_at=pa.array([moment], pa.timestamp("us", "UTC")),
        naive=pa.array([moment.replace(tzinfo=None)], pa.timestamp("ms")),
        nanoseconds=pa.array([1706933106000000001], pa.timestamp("ns")),
        zone=pa.array([moment], pa.timestamp("s", "Asia/Tokyo")),
        day=pa.array([date(2024, 2, 3)]),
        nested=pa.array([{"at": moment, "list": [moment]}]),
        text=["2024-02-03T04:05:06Z"],
    )
    run(source, tmp_path / "out.jsonl")
    fields = metadata(tmp_path / "out.jsonl")[0]
    utc = "2024-02-03T04:05:06+00:00"
    assert fields["created_at"] == utc and fields["nested"] == {"at": utc, "list": [utc]}
    assert fields["naive"] == "2024-02-03T04:05:06"
    assert fields["nanoseconds"] == "2024-02-03T04:05:06.000000001"
    assert fields["zone"] == "2024-02-03T13:05:06+09:00"
    assert fields["day"] == "2024-02-03"
    assert fields["text"] == "2024-02-03T04:05:06Z"


def test_nulls_structs_of_nulls_and_decimals_of_parquet_are_kept(tmp_path: Path) -> None:
    struct = pa.struct([("a", pa.int64()), ("b", pa.string())])
    source = parquet(
        tmp_path,
        null=pa.array([None], pa.string()),
        no_struct=pa.array([None], struct),
        struct_of_nulls=pa.array([{"a": None, "b": None}], struct),
        empty=pa.array([[]], pa.list_(pa.int64())),
        price=pa.array([Decimal("12345678901234567890.10")]),
        large=pa.array([2**64 - 1], pa.uint64()),
    )
    run(source, tmp_path / "out.jsonl")
    fields = metadata(tmp_path / "out.jsonl")[0]
    assert fields["null"] is None and fields["no_struct"] is None
    assert fields["struct_of_nulls"] == {"a": None, "b": None} and fields["empty"] == []
    assert fields["large"] == 2**64 - 1
    assert '"price":12345678901234567890.10' in (tmp_path / "out.jsonl").read_text()


@pytest.mark.parametrize(
    ("column", "rule"),
    [
        (pa.array([float("nan")]), "not a JSON number"),
        (pa.array([{"deep": [float("inf")]}]), "not a JSON number"),
        (pa.array([b"bytes"]), "no JSON form"),
        (pa.array([timedelta(days=1)]), "no JSON form"),
    ],
)
def test_values_of_parquet_without_a_json_form_are_found(column: Any, rule: str, tmp_path: Path) -> None:
    with pytest.raises(BadRows) as raised:
        run(parquet(tmp_path, value=column), tmp_path / "out.jsonl")
    assert [(item.place, item.rule) for item in raised.value.findings.shown] == [("row 1", rule)]

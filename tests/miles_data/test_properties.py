"""Whatever goes in: every output line parses, ids are unique, only the stated rules drop a row, counts add up."""

import csv
import json
import math
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from miles_data.findings import BadRows, DataError
from miles_data.report import Report
from miles_data.rules import check_instance_id
from tests.miles_data.rows_on_disk import records, run

SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

any_text = st.text(max_size=8)
clean_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.integers(-(2**70), 2**70) | st.floats()


def values(text: st.SearchStrategy[str], leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    plain = st.none() | st.booleans() | leaves | text
    return st.recursive(
        plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3), max_leaves=6
    )


few_ids = st.sampled_from(["a-1", "a-2", "a-3", "../x", "a/b", "", "ä", " a", "a\0"])
special = {
    "instance_id": few_ids | values(any_text, numbers),
    "problem_statement": any_text | values(any_text, numbers),
    "prompt": any_text | values(any_text, numbers),
    "agent_name": st.sampled_from(["shell", None, 3]),
    "split": st.sampled_from(["train", "test", None]),
    "metadata": st.none() | st.dictionaries(st.sampled_from(["instance_id", "n", "prompt"]), few_ids, max_size=2),
}
rows = st.fixed_dictionaries({}, optional=special).flatmap(
    lambda fixed: st.dictionaries(any_text, values(any_text, numbers), max_size=3).map(lambda more: {**more, **fixed})
)
good_rows = st.builds(
    lambda more, fixed: {key: value for key, value in more.items() if key not in special} | fixed,
    st.dictionaries(clean_text, values(clean_text, st.integers() | st.floats(allow_nan=False, allow_infinity=False))),
    st.fixed_dictionaries(
        {"problem_statement": clean_text.filter(lambda text: bool(text.strip()))},
        optional={"agent_name": clean_text, "split": clean_text},
    ),
)
lines = st.one_of(
    rows.map(lambda row: json.dumps(row).encode()),
    rows.map(lambda row: json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogatepass")),
    st.binary(max_size=30).map(lambda data: data.replace(b"\n", b"")),
    st.sampled_from([b"", b"  \r", b"[1]", b"7", b"null", b'{"a": NaN}', b'{"a": 1e999}', b"\xef\xbb\xbf{}"]),
)


def check(source: Path, output: Path, **options: Any) -> Report | None:
    """Convert with bad rows left out, and hold the counts against what is on the disk."""
    try:
        report = run(source, output, skip_bad_rows=True, **options)
    except (BadRows, DataError):
        assert not output.exists() and not Path(f"{output}.rejected.jsonl").exists()
        return None
    written = records(output)
    ids = [record["metadata"]["instance_id"] for record in written]
    assert len(ids) == len(set(ids)) == report.written
    assert all(
        record["prompt"] and check_instance_id(instance_id) for record, instance_id in zip(written, ids, strict=True)
    )
    assert report.read == report.written + report.skipped.total() + report.rejected.total
    rejected = Path(f"{output}.rejected.jsonl")
    reasons = [json.loads(line)["rule"] for line in rejected.read_bytes().splitlines()] if rejected.exists() else []
    assert Counter(reasons) == report.rejected.counts
    again = output.with_name("again.jsonl")
    run(source, again, skip_bad_rows=True, **options)
    assert again.read_bytes() == output.read_bytes()
    return report


@SETTINGS
@given(
    st.lists(lines, max_size=6),
    st.sampled_from(["error", "first", "last"]),
    st.sampled_from([b"\n", b"\r\n"]),
    st.booleans(),
)
def test_any_lines(data: list[bytes], on_duplicate: str, end: bytes, last_end: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "in.jsonl"
        source.write_bytes(end.join(data) + (end if last_end else b""))
        report = check(source, Path(name) / "out.jsonl", on_duplicate=on_duplicate)
        count = source.read_bytes().count(b"\n") + (source.read_bytes()[-1:] not in (b"", b"\n"))
        assert report is None or report.read == count


def as_read(value: Any) -> Any:
    return json.loads(json.dumps(value))


@SETTINGS
@given(
    st.lists(good_rows, min_size=1, max_size=5), st.booleans(), st.sampled_from(["in.jsonl", "in.json"]), st.booleans()
)
def test_good_rows_arrive_with_every_field(
    found: list[dict[str, Any]], ascii_only: bool, name: str, anew: bool
) -> None:
    for number, row in enumerate(found):
        row["instance_id"] = f"id-{number}"
    # A metadata object of its own makes the row be written anew.
    given_rows = [row | {"metadata": {"own": row["problem_statement"]}} for row in found] if anew else found
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder) / name, Path(folder) / "out.jsonl"
        texts = [json.dumps(row, ensure_ascii=ascii_only) for row in given_rows]
        text = "\n".join(texts) if name.endswith("l") else f"[{', '.join(texts)}]"
        source.write_bytes(text.encode())
        run(source, output)
        for row, record in zip(found, records(output), strict=True):
            defaults = {"agent_name": "mini-swe-agent", "split": "train"}
            own = {"own": row["problem_statement"]} if anew else {}
            stated = {key: row.get(key) or default for key, default in defaults.items()}
            assert record == {"prompt": row["problem_statement"], "metadata": as_read(row) | stated | own}


columns = {
    "instance_id": st.sampled_from(["a-1", "a-2", "a/b", None]) | clean_text,
    "problem_statement": st.none() | clean_text,
    "score": st.none() | st.floats(),
    "created_at": st.none() | st.datetimes(),
    "nested": st.none() | st.fixed_dictionaries({"a": st.none() | clean_text, "b": st.lists(st.floats(), max_size=2)}),
}


@SETTINGS
@given(st.lists(st.fixed_dictionaries(columns), max_size=6))
def test_any_parquet(found: list[dict[str, Any]]) -> None:
    kind = pa.struct([("a", pa.string()), ("b", pa.list_(pa.float64()))])
    types = (pa.string(), pa.string(), pa.float64(), pa.timestamp("us"), kind)
    schema = pa.schema(list(zip(columns, types, strict=True)))
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder) / "in.parquet", Path(folder) / "out.jsonl"
        pq.write_table(pa.Table.from_pylist(found, schema=schema), source)
        report = check(source, output, on_duplicate="first")
        if report is None:
            return
        by_id: dict[str, dict[str, Any]] = {}
        for row in found:
            numbers = [row["score"] or 0.0, *((row["nested"] or {}).get("b") or [])]
            if row["instance_id"] and row["problem_statement"] and all(map(math.isfinite, numbers)):
                by_id.setdefault(row["instance_id"], row)
        for record in records(output):
            fields, row = record["metadata"], by_id[record["metadata"]["instance_id"]]
            moment = row["created_at"]
            assert fields["created_at"] == (moment.isoformat() if moment else None)
            assert (fields["score"], fields["nested"]) == (row["score"], row["nested"])


@SETTINGS
@given(st.lists(st.lists(clean_text, min_size=3, max_size=3), max_size=6))
def test_any_csv(found: list[list[str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder) / "in.csv", Path(folder) / "out.jsonl"
        with source.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, quoting=csv.QUOTE_ALL).writerows([["instance_id", "prompt", "other"], *found])
        if check(source, output, on_duplicate="first"):
            for record in records(output):
                cells = [record["metadata"]["instance_id"], record["prompt"], record["metadata"]["other"]]
                assert cells in found

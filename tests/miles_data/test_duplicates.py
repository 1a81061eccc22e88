"""Rows with one instance_id: within a source, and against what --append finds."""

import json
import os
import threading
import time
import tracemalloc
from pathlib import Path

import pytest

from miles_data.findings import BadRows, DataError
from tests.miles_data.rows_on_disk import GOOD, good, ids, metadata, records, run, write


def test_the_first_or_the_last_of_different_rows_is_kept_and_counted(tmp_path: Path) -> None:
    rows = [
        good(1, n=1),
        good(2),
        good(1, n=2),
        good(3),
        good(1, n=3),
        good(3),
        good(2, problem_statement="longer text"),
    ]
    source, output = write(tmp_path / "in.jsonl", *rows), tmp_path / "out.jsonl"
    report = run(source, output, on_duplicate="first")
    assert [(fields["instance_id"], fields["n"]) for fields in metadata(output)] == [("a-1", 1), ("a-2", 1), ("a-3", 1)]
    assert report.skipped == {"duplicate, the first row kept": 3, "duplicate": 1}
    report = run(source, output, on_duplicate="last")
    assert [(fields["instance_id"], fields["n"]) for fields in metadata(output)] == [("a-3", 1), ("a-1", 3), ("a-2", 1)]
    assert report.skipped == {"duplicate, a later row kept": 3, "duplicate": 1}
    assert (report.read, report.written, report.lengths.quantile(1)) == (7, 3, len("longer text"))


def test_the_same_row_in_other_spelling_is_the_same(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    one = '{"instance_id": "a-1", "problem_statement": "\\u00e4", "n": [1, {"b": 18446744073709551617, "a": 2}]}'
    two = '{ "n":[1,{"a":2,"b":18446744073709551617}],"problem_statement":"ä","instance_id":"a-1"}'
    source.write_text(f"{one}\n{two}\n")
    assert run(source, tmp_path / "out.jsonl").skipped == {"duplicate": 1}
    for other in (two.replace("[1,", "[1.0,"), two.replace("[1,", "[true,"), two.replace("617", "616")):
        source.write_text(f"{one}\n{other}\n")
        with pytest.raises(BadRows, match=r"line 2: duplicate instance_id: .* \(n\)"):
            run(source, tmp_path / "out.jsonl")


def test_append_replaces_an_older_row_only_when_told(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    run(write(tmp_path / "in.jsonl", *(good(number) for number in range(5))), output)
    source = write(tmp_path / "in.jsonl", good(1, n=2), good(3, n=2), good(1, n=3), good(9))
    with pytest.raises(BadRows, match="3 of 4 rows"):
        run(source, output, append=True)
    report = run(source, output, append=True, on_duplicate="last")
    assert [(fields["instance_id"], fields["n"]) for fields in metadata(output)] == [
        *((f"a-{number}", 1) for number in (0, 2, 4)),
        *(("a-3", 2), ("a-1", 3), ("a-9", 1)),
    ]
    assert (report.kept, report.replaced, report.written) == (3, 2, 3)
    assert report.skipped == {"duplicate, a later row kept": 1}


@pytest.mark.parametrize("old", [b"", b"\n", b"\xef\xbb\xbf\r\n"])
def test_append_to_an_empty_file_or_none(old: bytes, tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", GOOD)
    (tmp_path / "out.jsonl").write_bytes(old)
    run(source, tmp_path / "out.jsonl", append=True)
    run(source, tmp_path / "new.jsonl", append=True)
    assert ids(tmp_path / "out.jsonl") == ids(tmp_path / "new.jsonl") == ["a-1"]


def test_append_leaves_the_lines_that_are_there_as_they_are(tmp_path: Path) -> None:
    old = '{ "metadata": {"instance_id":"old", "n": 1e5}, "prompt": "x"}'
    output = tmp_path / "out.jsonl"
    output.write_text(f"{old}\r\n\n{old.replace('old', 'second')}")
    run(write(tmp_path / "in.jsonl", GOOD), output, append=True)
    assert output.read_text().startswith(f"{old}\n{old.replace('old', 'second')}\n{{")
    assert [record["metadata"]["instance_id"] for record in records(output)] == ["old", "second", "a-1"]


def test_append_to_a_file_that_repeats_itself_is_refused(tmp_path: Path) -> None:
    output = write(tmp_path / "out.jsonl", *[{"prompt": "x", "metadata": {"instance_id": "old"}}] * 2)
    with pytest.raises(BadRows, match="line 2: duplicate instance_id: 'old' is in the output already"):
        run(write(tmp_path / "in.jsonl", GOOD), output, append=True)


def test_append_does_not_undo_what_another_process_appended_meanwhile(tmp_path: Path) -> None:
    output, pipe = write(tmp_path / "out.jsonl"), tmp_path / "pipe"
    os.mkfifo(pipe)

    def append_something_else() -> None:
        with pipe.open("w") as file:
            file.write(json.dumps(good(1)) + "\n")
            file.flush()
            while not any(".tmp-" in path.name for path in tmp_path.iterdir()):
                time.sleep(0.01)
            write(output, {"prompt": "x", "metadata": {"instance_id": "other"}})

    other = threading.Thread(target=append_something_else)
    other.start()
    with pytest.raises(DataError, match="changed by someone else meanwhile"):
        run(pipe, output, append=True)
    other.join()
    assert ids(output) == ["other"]


def test_thousands_of_duplicates_cost_no_memory_of_their_size(tmp_path: Path) -> None:
    rows = (good(number % 50, n=number, patch="x" * 10_000) for number in range(4000))
    source = write(tmp_path / "in.jsonl", *rows)
    tracemalloc.start()
    try:
        report = run(source, tmp_path / "out.jsonl", on_duplicate="last")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert report.written == 50 and report.skipped == {"duplicate, a later row kept": 3950}
    assert [fields["n"] for fields in metadata(tmp_path / "out.jsonl")] == list(range(3950, 4000))
    assert peak < 25_000_000 < source.stat().st_size

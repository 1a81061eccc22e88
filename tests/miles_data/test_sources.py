"""Every kind of source gives the same records; damaged ones are errors, never a short result."""

import gzip
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from backports import zstd

from download_and_process_data import main
from miles_data.findings import BadRows, DataError
from tests.miles_data.rows_on_disk import GOOD, good, ids, metadata, records, run, write

ROWS = [good(1), good(2, FAIL_TO_PASS=["t::a"]), good(3)]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()


def test_json_lines_compressed_and_arrays_give_the_same_records(tmp_path: Path) -> None:
    files = {
        "plain.jsonl": LINES,
        "one.jsonl.gz": gzip.compress(LINES),
        "two.jsonl.gz": gzip.compress(LINES[:100]) + gzip.compress(LINES[100:]),
        "one.jsonl.zst": zstd.compress(LINES),
        "two.jsonl.zst": zstd.compress(LINES[:100]) + zstd.compress(LINES[100:]),
        "lines.json": LINES,
        "array.json": json.dumps(ROWS).encode(),
        "indented.json": b"\xef\xbb\xbf \r\n" + json.dumps(ROWS, indent=2).replace("\n", "\r\n").encode(),
        "array.json.gz": gzip.compress(json.dumps(ROWS).encode()),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        run(tmp_path / name, tmp_path / "out.jsonl")
        assert [fields["FAIL_TO_PASS"] for fields in metadata(tmp_path / "out.jsonl")] == [
            row["FAIL_TO_PASS"] for row in ROWS
        ], name
        assert ids(tmp_path / "out.jsonl") == ["a-1", "a-2", "a-3"], name


@pytest.mark.parametrize("name", ["cut.jsonl.gz", "cut.jsonl.zst", "bad.jsonl.gz", "bad.jsonl.zst", "bad.parquet"])
def test_damaged_files_are_one_error(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pack = gzip.compress if name.endswith(".gz") else zstd.compress
    data = pack(os.urandom(50_000).hex().encode() + b"\n" + LINES)
    (tmp_path / name).write_bytes(data[:-20] if name.startswith("cut") else b"no such format")
    assert main(["--input", str(tmp_path / name), "--output", str(tmp_path / "out.jsonl"), "--skip-bad-rows"]) == 2
    error = capsys.readouterr().err
    assert name in error and "Traceback" not in error
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("text", "findings"),
    [
        ('[{"instance_id": "b", "problem_statement": "x"}, 7]', [("item 2", "not an object")]),
        ('[{"instance_id": "b", "problem_statement": "x", "n": NaN}, {}]', [("item 1", "not a JSON number")]),
        ('[{"instance_id": "b", "problem_sta', [("item 1", "broken JSON")]),
        ('[{"instance_id": "b", "problem_statement": "x"}', [("item 1", "broken JSON")]),
        ('[{"instance_id": "b", "problem_statement": "x"} {}]', [("item 1", "broken JSON")]),
        ('[{"instance_id": "b", "problem_statement": "x"},]', [("item 2", "broken JSON")]),
        ('[{"instance_id": "b", "problem_statement": "x"}] x', [("after the array", "broken JSON")]),
    ],
)
def test_what_is_wrong_with_an_array_is_named_by_item(
    text: str, findings: list[tuple[str, str]], tmp_path: Path
) -> None:
    (tmp_path / "in.json").write_text(text)
    with pytest.raises(BadRows) as raised:
        run(tmp_path / "in.json", tmp_path / "out.jsonl")
    assert [(item.place, item.rule) for item in raised.value.findings.shown][: len(findings)] == findings


def test_items_larger_than_what_is_read_at_a_time_are_whole(tmp_path: Path) -> None:
    rows = [good(number, log="ä" * 700_000) for number in range(5)]
    (tmp_path / "in.json").write_text(json.dumps(rows, ensure_ascii=False))
    run(tmp_path / "in.json", tmp_path / "out.jsonl")
    assert [fields["log"] for fields in metadata(tmp_path / "out.jsonl")] == ["ä" * 700_000] * 5


def test_csv_cells_stay_text(tmp_path: Path) -> None:
    text = "instance_id,problem_statement,n,score\r\n" + 'a-1,"x, ""y""\nz",01,NaN\r\n\r\na-2,b,,2024-02-03\r\n'
    (tmp_path / "in.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    report = run(tmp_path / "in.csv", tmp_path / "out.jsonl")
    first, second = metadata(tmp_path / "out.jsonl")
    assert (first["problem_statement"], first["n"], first["score"]) == ('x, "y"\nz', "01", "NaN")
    assert (second["n"], second["score"]) == ("", "2024-02-03")
    assert report.skipped == {"blank line": 1}


def test_broken_csv_is_named_by_line(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_bytes(b'instance_id,prompt\na-1,"two\nlines"\na-2,b,c\na-3,\xff\na-4,"open\n')
    with pytest.raises(BadRows) as raised:
        run(tmp_path / "in.csv", tmp_path / "out.jsonl")
    found = [(item.place, item.rule) for item in raised.value.findings.shown]
    assert found == [("line 4", "broken CSV"), ("line 5", "lone surrogate"), ("line 6", "broken CSV")]
    (tmp_path / "in.csv").write_text("id,id\n1,2\n")
    with pytest.raises(DataError, match="more than one column named id"):
        run(tmp_path / "in.csv", tmp_path / "out.jsonl")


def test_parquet_rows_keep_lists_and_text(tmp_path: Path) -> None:
    rows = [GOOD | {"instance_id": f"a-{number}", "FAIL_TO_PASS": ["t::a"] * number} for number in range(3000)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in.parquet", row_group_size=700)
    report = run(tmp_path / "in.parquet", tmp_path / "out.jsonl")
    written = metadata(tmp_path / "out.jsonl")
    assert report.written == 3000
    assert written[2]["FAIL_TO_PASS"] == ["t::a"] * 2 and written[-1]["instance_id"] == "a-2999"


def as_pipe(path: Path, data: bytes) -> Callable[[], None]:
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_bytes(data))
    writer.start()
    return writer.join


def test_a_named_pipe_is_read_as_json_lines(tmp_path: Path) -> None:
    wait = as_pipe(tmp_path / "rows", LINES)
    run(tmp_path / "rows", tmp_path / "out.jsonl")
    wait()
    assert ids(tmp_path / "out.jsonl") == ["a-1", "a-2", "a-3"]


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_standard_input_is_read_and_may_not_be_the_output(name: str, tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    command = [sys.executable, "download_and_process_data.py", "--input", name, "--output", str(output)]
    subprocess.run(command, input=LINES, check=True)
    assert ids(output) == ["a-1", "a-2", "a-3"]
    before = output.read_bytes()
    with output.open("rb") as same:
        done = subprocess.run(command, stdin=same, capture_output=True, text=True)
    assert done.returncode == 2 and "is the input" in done.stderr
    assert output.read_bytes() == before


def test_the_documented_terminal_bench_and_chat_rows_convert_as_they_are(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "hi"}]
    for key in ("instance_id", "task_id", "task_name", "name", "id"):
        write(tmp_path / "in.jsonl", {key: "hello-world", "instruction": "Do it.", "difficulty": "easy"})
        for options in ({}, {"id_key": key}):
            run(tmp_path / "in.jsonl", tmp_path / "out.jsonl", **options)
            assert ids(tmp_path / "out.jsonl") == ["hello-world"]
            assert metadata(tmp_path / "out.jsonl")[0][key] == "hello-world"
    run(write(tmp_path / "in.jsonl", {"instance_id": "a-1", "prompt": chat}), tmp_path / "out.jsonl")
    assert records(tmp_path / "out.jsonl")[0]["prompt"] == chat


def test_the_field_that_names_the_task_is_one_for_all_rows(tmp_path: Path) -> None:
    rows = [{"task_id": "t-1", "prompt": "x"}, {"instance_id": "a-1", "prompt": "x"}]
    with pytest.raises(BadRows, match="line 2: missing instance_id: no field task_id"):
        run(write(tmp_path / "in.jsonl", *rows), tmp_path / "out.jsonl")
    rows = [{"task_id": "t-1", "prompt": "x"}, {"instance_id": "a-1", "task_id": "t-2", "prompt": "x"}]
    with pytest.raises(BadRows, match="line 2: instance_id conflict: task_id is 't-2', instance_id is 'a-1'"):
        run(write(tmp_path / "in.jsonl", *rows), tmp_path / "out.jsonl")


def test_a_missing_package_is_one_sentence_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, package in (("in.parquet", "pyarrow"), ("in.jsonl.zst", "backports.zstd"), ("org/name", "datasets")):
        if "/" not in name:
            (tmp_path / name).write_bytes(b"")
        blocked: dict[str, Any] = {"pyarrow": None, "backports.zstd": None, "datasets": None}
        with monkeypatch.context() as context:
            for module, value in blocked.items():
                context.setitem(sys.modules, module, value)
            with pytest.raises(DataError, match=f"needs the package {package}, which is not installed: pip install"):
                run(Path(name) if "/" in name else tmp_path / name, tmp_path / "out.jsonl")

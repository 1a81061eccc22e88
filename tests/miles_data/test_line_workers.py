"""A large file is converted by several processes, and nobody can tell from the result."""

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from miles_data import line_blocks, line_workers, outcomes
from miles_data.convert import convert
from miles_data.findings import DataError
from miles_data.line_blocks import BLOCK, blocks_of
from miles_data.options import ConvertOptions

LINES = [
    b'{"instance_id": "%d", "problem_statement": "Fix it.", "list": ["a", 1]}\n',
    b'{"instance_id": "%d", "problem_statement": "Fix\\u2028it.", "agent_name": null}\r\n',
    b'  {"instance_id": "%d", "problem_statement": "x", "agent_name": "own", "split": "test"}\n',
    b'{"prompt": [{"role": "user", "content": "Fix it."}], "metadata": {"instance_id": "%d"}}\n',
    b'{"instance_id": "%d", "prompt": "Fix", "metadata": {"more": 123456789012345678901234567890}}\n',
    b'{"instance_id": "same", "problem_statement": "%d"}\n',
    b'{"instance_id": "same", "problem_statement": "equal"}\n',
    b'{"instance_id": "%d/", "problem_statement": "x"}\n',
    b'{"instance_id": "%d", "problem_statement": "\\ud800"}\n',
    b'{"instance_id": "%d", "problem_statement": " "}\n',
    b'{"instance_id": "%d", "problem_statement": \n',
    b"[%d]\n",
    b"\xff%d\n",
    b"\n",
    b" \t\r\n",
]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes, "_WORTH_PROCESSES", 1)
    monkeypatch.setattr(outcomes, "_processors", lambda: 2)
    monkeypatch.setattr(line_blocks, "BLOCK", 300)


def numbered(line: bytes, number: int) -> bytes:
    return line.replace(b"%d", b"%d" % number)


def converted(source: Path, output: Path, **options: Any) -> tuple[str, list[bytes]]:
    """What a caller is told, and the bytes of both files."""
    try:
        told = str(convert(ConvertOptions(str(source), output, **options)))
    except DataError as error:
        told = str(error)
    files = (output, output.with_name(f"{output.name}.rejected.jsonl"))
    return told, [file.read_bytes() if file.exists() else b"" for file in files]


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from(LINES), min_size=1, max_size=40),
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
    st.booleans(),
    st.sampled_from(["error", "first", "last"]),
    st.sampled_from([None, "train", "test"]),
)
def test_report_output_and_rejected_rows_are_those_of_one_process(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[bytes],
    mark: bytes,
    cut: bool,
    on_duplicate: str,
    split: str | None,
) -> None:
    folder = tmp_path_factory.mktemp("run")
    source = folder / "in.jsonl"
    data = mark + b"".join(numbered(line, number) for number, line in enumerate(lines))
    source.write_bytes(data[:-1] if cut else data)
    options: dict[str, Any] = {"on_duplicate": on_duplicate, "skip_bad_rows": True, "split": split}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outcomes, "_WORTH_PROCESSES", 1 << 30)
        expected, expected_files = converted(source, folder / "one.jsonl", **options)
    found, files = converted(source, folder / "several.jsonl", **options)
    assert files == expected_files
    assert found.replace("several", "one") == expected


def test_a_row_larger_than_the_shared_memory_arrives(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    sizes = [10, 3 * BLOCK, 20, 30, 3 * BLOCK]
    rows = [{"instance_id": f"r{number}", "problem_statement": "x" * size} for number, size in enumerate(sizes)]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    convert(ConvertOptions(str(source), tmp_path / "out.jsonl"))
    lines = (tmp_path / "out.jsonl").read_bytes().splitlines()
    assert [len(json.loads(line)["prompt"]) for line in lines] == sizes


def test_blocks_end_with_lines_and_cover_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lines"
    data = b"".join(b"x" * (length * 7 % 41) + b"\n" for length in range(200)) + b"no end"
    path.write_bytes(data)
    for size, probe in ((1, 1), (10, 3), (64, 100), (len(data), 5)):
        monkeypatch.setattr(line_blocks, "BLOCK", size)
        monkeypatch.setattr(line_blocks, "_PROBE", probe)
        with path.open("rb") as file:
            blocks = list(blocks_of(file.fileno(), len(data)))
        pieces = [data[block.start : block.end] for block in blocks]
        assert b"".join(pieces) == data
        assert all(piece.endswith(b"\n") for piece in pieces[:-1])


def test_which_field_names_the_tasks_is_decided_by_the_first_row_that_has_one(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    nameless = b'{"problem_statement": "x", "more": "some text that fills a block"}\n' * 9
    rows = b"".join(b'{"task_id": "t%d", "name": "n%d", "problem_statement": "x"}\n' % (n, n) for n in range(20))
    source.write_bytes(nameless + rows + b'{"name": "only", "problem_statement": "x"}\n')
    report = convert(ConvertOptions(str(source), tmp_path / "out.jsonl", skip_bad_rows=True))
    assert (report.written, report.rejected.total) == (20, 10)
    assert report.rejected.shown[-1].place == "line 30"
    assert "task_id" in report.rejected.shown[-1].text


def good_rows(path: Path, count: int) -> Path:
    path.write_bytes(b"".join(b'{"instance_id": "a%d", "problem_statement": "Fix it."}\n' % n for n in range(count)))
    return path


def test_a_process_that_is_killed_ends_the_conversion_and_leaves_the_old_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, output = good_rows(tmp_path / "in.jsonl", 2000), tmp_path / "out.jsonl"
    output.write_bytes(b"old\n")
    give, given_blocks = line_workers.LineWorker.give, Counter[int]()

    def killed(self: line_workers.LineWorker, block: line_blocks.Block) -> None:
        process = self._process  # pyright: ignore[reportPrivateUsage]
        assert process.pid is not None
        given_blocks[process.pid] += 1
        if given_blocks[process.pid] == 9:
            os.kill(process.pid, signal.SIGKILL)
        give(self, block)

    monkeypatch.setattr(line_workers.LineWorker, "give", killed)
    with pytest.raises(DataError, match=r"a process of the conversion ended too early \(exit code -9\)"):
        convert(ConvertOptions(str(source), output))
    assert output.read_bytes() == b"old\n"
    assert sorted(tmp_path.iterdir()) == [source, output]


def test_an_input_that_becomes_shorter_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = good_rows(tmp_path / "in.jsonl", 2000)
    blocks = line_blocks.blocks_of

    def cut(descriptor: int, size: int) -> Iterator[line_blocks.Block]:
        for number, block in enumerate(blocks(descriptor, size)):
            if number == 20:
                os.truncate(source, 9000)
            yield block

    monkeypatch.setattr(line_workers, "blocks_of", cut)
    with pytest.raises(DataError, match="became shorter"):
        convert(ConvertOptions(str(source), tmp_path / "out.jsonl"))
    assert not (tmp_path / "out.jsonl").exists()

"""What a user sees: the closing table, rejected rows, checks, the comparison with task folders, the progress bar."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from download_and_process_data import main
from miles_data.findings import BadRows, DataError
from miles_data.rules import RULES
from tasks.folder import write_tasks
from tests.miles_data.rows_on_disk import GOOD, good, ids, run, write

ROOT = Path(__file__).resolve().parents[2]


def test_bad_rows_are_left_out_on_request_and_kept_with_their_reasons(tmp_path: Path) -> None:
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines = [
        json.dumps(good(1)),
        '{"instance_id": "a-2", "problem',
        json.dumps(good(3, problem_statement="")),
        "\udcff",
    ]
    source.write_bytes("\n".join([*lines, json.dumps(good(5))]).encode("utf-8", "surrogateescape"))
    report = run(source, output, skip_bad_rows=True)
    assert ids(output) == ["a-1", "a-5"]
    assert (report.read, report.written, report.rejected.total) == (5, 2, 3)
    rejected = [json.loads(line) for line in (tmp_path / "out.jsonl.rejected.jsonl").read_text().splitlines()]
    assert [(row["place"], row["rule"]) for row in rejected] == [
        ("line 2", "broken JSON"),
        ("line 3", "empty prompt"),
        ("line 4", "not UTF-8"),
    ]
    assert [row["text"] for row in rejected] == [*lines[1:3], "\\xff"]
    assert all(row["reason"] for row in rejected)
    text = str(report)
    assert "rejected, broken JSON" in text and "out.jsonl.rejected.jsonl" in text
    run(write(source, GOOD), output, skip_bad_rows=True)
    assert not (tmp_path / "out.jsonl.rejected.jsonl").exists()


def test_with_bad_rows_only_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").write_text("old\n")
    with pytest.raises(BadRows, match="1 of 1 rows"):
        run(write(tmp_path / "in.jsonl", {}), tmp_path / "out.jsonl", skip_bad_rows=True)
    assert (tmp_path / "out.jsonl").read_text() == "old\n"
    assert not (tmp_path / "out.jsonl.rejected.jsonl").exists()


def test_duplicates_and_bad_rows_only_leave_the_output_as_it_is(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    run(write(tmp_path / "in.jsonl", GOOD), output)
    before = output.read_bytes()
    report = run(write(tmp_path / "in.jsonl", GOOD, {}), output, append=True, skip_bad_rows=True)
    assert output.read_bytes() == before
    assert (report.read, report.kept, report.written, report.rejected.total) == (2, 1, 0, 1)


def test_the_file_of_rejected_rows_may_not_be_the_input(tmp_path: Path) -> None:
    source = write(tmp_path / "out.jsonl.rejected.jsonl", GOOD)
    with pytest.raises(DataError, match="file for rejected rows"):
        run(source, tmp_path / "out.jsonl", skip_bad_rows=True)


def test_the_table_counts_rows_and_prompt_lengths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [good(number, problem_statement="x" * number) for number in range(1, 101)]
    source = write(tmp_path / "in.jsonl", *rows, rows[0])
    options = ["--input", str(source), "--output", str(tmp_path / "out.jsonl"), "--max-seq-len", "90"]
    assert main(options) == 0
    said = capsys.readouterr()
    table = [line.rsplit(maxsplit=1) for line in said.out.splitlines()[1:]]
    assert {name.strip(): count for name, count in table} == {
        "read": "101",
        "written": "100",
        "left out, duplicate": "1",
        "prompt characters, p50": "50",
        "p95": "95",
        "max": "100",
        "longer than 90 characters": "10",
    }
    assert said.err == ""


def test_prompt_lengths_are_tokens_of_the_given_tokenizer(tmp_path: Path) -> None:
    from tests.miles_data.word_tokenizer import save_word_tokenizer

    folder = save_word_tokenizer(tmp_path / "tokenizer")
    chat = [{"role": "user", "content": "one two three"}]
    rows = [good(1, problem_statement="one two"), good(2, problem_statement="one " * 9)]
    source = write(tmp_path / "in.jsonl", *rows, {"instance_id": "chat", "prompt": chat})
    report = run(source, tmp_path / "out.jsonl", tokenizer=str(folder), max_seq_len=3)
    lengths = report.lengths
    assert (lengths.unit, lengths.quantile(0.1), lengths.quantile(0.5), lengths.quantile(1)) == ("tokens", 2, 3, 9)
    assert "longer than 3 tokens" in str(report) and lengths.above(3) == 1
    with pytest.raises(DataError, match=r"--tokenizer .* cannot be loaded"):
        run(source, tmp_path / "out.jsonl", tokenizer=str(tmp_path))


def test_tasks_and_rows_are_compared_on_both_sides(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks"
    names = write_tasks(tasks, ["mkdir"], "train", 3, 0)
    rows = [{"instance_id": name, "prompt": "x"} for name in names[:2]]
    report = run(write(tmp_path / "in.jsonl", *rows), tmp_path / "out.jsonl", tasks_dir=tasks)
    assert f"1 of 3 tasks in {tasks} have no row: {names[2]}" in str(report)
    source = write(tmp_path / "in.jsonl", *rows, {"instance_id": "stranger", "prompt": "x"})
    for options in ({}, {"append": True}):
        with pytest.raises(BadRows, match=f"line 3: no task folder: 'stranger' has none in {tasks}") as raised:
            run(source, tmp_path / "out.jsonl", tasks_dir=tasks, **options)
        assert f"have no row: {names[2]}" in str(raised.value)
    report = run(source, tmp_path / "out.jsonl", tasks_dir=tasks, skip_bad_rows=True)
    assert ids(tmp_path / "out.jsonl") == names[:2] and report.rejected.counts == {"no task folder": 1}
    with pytest.raises(DataError, match="is not a folder"):
        run(source, tmp_path / "out.jsonl", tasks_dir=tmp_path / "nowhere")


def test_check_reads_a_file_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tasks = tmp_path / "tasks"
    names = write_tasks(tasks, ["mkdir"], "train", 2, 0)
    data = tmp_path / "data.jsonl"
    run(tasks, data)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    check = ["--input", str(data), "--check", "--tasks-dir", str(tasks)]
    assert main(check) == 0
    assert f"every one of the 2 tasks in {tasks} has a row" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
    with data.open("a") as file:
        file.write(
            data.read_text().splitlines()[0] + '\n{"prompt": "x"}\n{"prompt": "x", "metadata": {"instance_id": "s"}}'
        )
    assert main(check) == 1
    error = capsys.readouterr().err
    assert f"line 3: duplicate instance_id: '{names[0]}' is on line 1 already" in error
    assert "line 4: missing metadata" in error and "line 5: no task folder: 's'" in error
    for flags in (["--output", str(data)], ["--append"], ["--skip-bad-rows"]):
        assert main([*check, *flags]) == 2
        assert "--check writes nothing: leave out " + flags[0] in capsys.readouterr().err


def test_an_output_is_needed_where_one_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--input", str(write(tmp_path / "in.jsonl", GOOD))]) == 2
    assert "--output is missing" in capsys.readouterr().err


def test_a_terminal_gets_a_bar_and_a_pipe_does_not(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", *(good(number) for number in range(100)))
    command = [sys.executable, "download_and_process_data.py", "--input", source, "--output", tmp_path / "out.jsonl"]
    leader, follower = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color"}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=follower, env=environment, check=True)
    shown = os.read(leader, 100_000)
    os.close(follower)
    os.close(leader)
    assert b"converting" in shown and b"converting" not in done.stdout
    piped = subprocess.run(command, capture_output=True, check=True)
    assert piped.stderr == b"" and piped.stdout == done.stdout


def test_help_and_readme_state_every_rule(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    told = "".join(sign for sign in capsys.readouterr().out if sign not in " \n│")
    readme = (ROOT / "README.md").read_text()
    for kind, rule in RULES:
        assert f"{kind}:{rule}".replace(" ", "") in told
        assert f"| {kind} | {rule} |" in readme

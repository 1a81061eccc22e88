"""Conversion to Miles JSONL loses no field, hides no bad row, and leaves the old output whole."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from harbor.models.task.task import Task

from download_and_process_data import main
from miles_data.findings import SHOWN, BadRows, DataError
from tasks.folder import write_tasks
from tests.miles_data.rows_on_disk import GOOD, records, run, write


def line(fields: object) -> str:
    return json.dumps(fields) + "\n"


def test_every_original_field_arrives_as_it_was(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", GOOD, GOOD | {"instance_id": "a-2", "FAIL_TO_PASS": ["t::a"]})
    report = run(source, tmp_path / "out.jsonl")
    first, second = records(tmp_path / "out.jsonl")
    assert first == {"prompt": "Fix it.", "metadata": GOOD | {"agent_name": "mini-swe-agent", "split": "train"}}
    assert second["metadata"]["FAIL_TO_PASS"] == ["t::a"]
    assert (report.read, report.written) == (2, 2)


def test_task_folders_become_records_and_unusable_ones_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = tmp_path / "tasks"
    ids = write_tasks(tasks, ["mkdir", "sort"], "train", 2, 0) + write_tasks(tasks, ["copy"], "test", 1, 0)
    (tasks / ids[0] / "instruction.md").write_text("<!-- canary 123 -->\n\nMake it.\n")
    for name, text in {"multi": '[[steps]]\nname = "a"\n', "broken": "[task\n", "bare": ""}.items():
        (tasks / name).mkdir()
        (tasks / name / "task.toml").write_text(text)
    (tasks / ".cache").mkdir()
    (tasks / "README.md").write_text("")
    output = tmp_path / "out.jsonl"
    assert main(["--input", str(tasks), "--output", str(output), "--agent-name", "shell"]) == 0
    out = capsys.readouterr().out
    assert "multi: multi-step task" in out and "broken: invalid task" in out and "bare: invalid task" in out
    rows = records(output)
    assert [row["metadata"]["instance_id"] for row in rows] == sorted(ids)
    for row in rows:
        metadata = row["metadata"]
        task = Task(tasks / metadata["instance_id"])
        assert row["prompt"] == task.instruction
        assert metadata["agent_name"] == "shell" and metadata["task_name"] == task.name
        assert metadata["split"] == metadata["instance_id"].split("-")[1]
        assert metadata["family"] == metadata["instance_id"].split("-")[0]


def test_split_selects_rows_that_have_one_and_labels_those_that_have_none(tmp_path: Path) -> None:
    rows = [GOOD | {"split": "train"}, GOOD | {"instance_id": "a-2", "split": "test"}, GOOD | {"instance_id": "a-3"}]
    report = run(write(tmp_path / "in.jsonl", *rows), tmp_path / "out.jsonl", split="test")
    written = [(row["metadata"]["instance_id"], row["metadata"]["split"]) for row in records(tmp_path / "out.jsonl")]
    assert written == [("a-2", "test"), ("a-3", "test")]
    assert report.skipped == {"another split": 1}


BAD_ROWS: list[tuple[str, str]] = [
    (line({"instance_id": "a-1", "problem_statement": ""}), "empty prompt"),
    (line({"instance_id": "a-1", "problem_statement": "  \n"}), "empty prompt"),
    (line({"instance_id": "a-1"}), "missing prompt"),
    (line({"instance_id": "a-1", "prompt": []}), "empty prompt"),
    (line({"instance_id": "a-1", "prompt": ["hi"]}), "bad prompt"),
    (line({"instance_id": "a-1", "prompt": 3}), "bad prompt"),
    (line({"problem_statement": "x"}), "missing instance_id"),
    (line({"instance_id": 7, "problem_statement": "x"}), "bad instance_id"),
    *((line({"instance_id": bad, "problem_statement": "x"}), "bad instance_id") for bad in ("../x", "a/b", "..", "")),
    (line({"instance_id": "a\0b", "problem_statement": "x"}), "bad instance_id"),
    (line({"instance_id": "x" * 300, "problem_statement": "x"}), "bad instance_id"),
    (line(GOOD | {"metadata": {"instance_id": "other"}}), "metadata conflict"),
    (line(GOOD | {"agent_name": 3}), "bad agent_name"),
    ('{"instance_id": "a-1", "problem_st\n', "broken JSON"),
    ("[1]\n", "not an object"),
    ('{"instance_id": "a-1", "problem_statement": "x", "score": NaN}\n', "not a JSON number"),
    ('{"instance_id": "a-1", "problem_statement": "x", "score": 1e999}\n', "not a JSON number"),
    ('{"instance_id": "a-1", "problem_statement": "\\ud800"}\n', "lone surrogate"),
    ('{"instance_id": "a-1", "n": ' + "9" * 5000 + "}\n", "broken JSON"),
]


@pytest.mark.parametrize(("text", "rule"), BAD_ROWS)
def test_a_bad_row_is_named_with_its_line_and_nothing_is_written(text: str, rule: str, tmp_path: Path) -> None:
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(line(GOOD | {"instance_id": "good"}) + "\n" + text)
    output.write_text("old\n")
    with pytest.raises(BadRows) as raised:
        run(source, output)
    assert [(finding.place, finding.rule) for finding in raised.value.findings.shown] == [("line 3", rule)]
    assert output.read_text() == "old\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]


def test_the_first_twenty_findings_are_shown_and_the_rest_counted(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", *([{"instance_id": "a"}] * 30), *([{"problem_statement": "x"}] * 3))
    with pytest.raises(BadRows) as raised:
        run(source, tmp_path / "out.jsonl")
    message = str(raised.value)
    assert message.count("line ") == SHOWN and "and 13 more" in message
    assert "30 missing prompt, 3 missing instance_id" in message
    assert not (tmp_path / "out.jsonl").exists()


def test_an_identical_duplicate_is_kept_once_and_a_different_one_refused(tmp_path: Path) -> None:
    report = run(write(tmp_path / "same.jsonl", GOOD, GOOD), tmp_path / "out.jsonl")
    assert (report.written, report.skipped) == (1, {"duplicate": 1})
    with pytest.raises(BadRows, match="line 2: duplicate instance_id: 'a-1'"):
        run(write(tmp_path / "other.jsonl", GOOD, GOOD | {"problem_statement": "y"}), tmp_path / "out.jsonl")


def test_awkward_text_arrives_unchanged(tmp_path: Path) -> None:
    prompt = "one\u2028two\r\nthree \0 ä 😀"
    source = tmp_path / "in.jsonl"
    row = {"instance_id": "a-1", "problem_statement": prompt}
    source.write_bytes(b"\xef\xbb\xbf" + json.dumps(row, ensure_ascii=False).encode() + b"\r\n\r\n")
    report = run(source, tmp_path / "out.jsonl")
    assert [row["prompt"] for row in records(tmp_path / "out.jsonl")] == [prompt]
    assert report.skipped == {"blank line": 1}


def test_the_prompt_comes_from_the_named_field_or_the_first_known_one(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "hi"}]
    rows = [
        {"instance_id": "1", "prompt": "c", "instruction": "b", "problem_statement": "a", "mine": "m"},
        {"instance_id": "2", "prompt": "c", "instruction": "b", "problem_statement": None, "mine": "m"},
        {"instance_id": "3", "prompt": chat, "mine": "m"},
    ]
    source = write(tmp_path / "in.jsonl", *rows)
    run(source, tmp_path / "out.jsonl")
    assert [row["prompt"] for row in records(tmp_path / "out.jsonl")] == ["a", "b", chat]
    run(source, tmp_path / "out.jsonl", prompt_key="mine")
    assert [row["prompt"] for row in records(tmp_path / "out.jsonl")] == ["m", "m", "m"]
    with pytest.raises(BadRows, match="no field nothing"):
        run(source, tmp_path / "out.jsonl", prompt_key="nothing")


def test_the_agent_of_a_row_is_kept_and_a_contradicting_flag_is_refused(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", GOOD | {"agent_name": "oracle"})
    run(source, tmp_path / "out.jsonl")
    assert records(tmp_path / "out.jsonl")[0]["metadata"]["agent_name"] == "oracle"
    with pytest.raises(BadRows, match=r"'oracle'.*'shell'"):
        run(source, tmp_path / "out.jsonl", agent_name="shell")


def test_a_second_run_and_a_conversion_of_the_output_give_the_same_bytes(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks"
    write_tasks(tasks, ["mkdir", "sort"], "train", 3, 0)
    run(tasks, tmp_path / "a.jsonl")
    run(tasks, tmp_path / "b.jsonl")
    run(tmp_path / "a.jsonl", tmp_path / "c.jsonl")
    first = (tmp_path / "a.jsonl").read_bytes()
    assert first == (tmp_path / "b.jsonl").read_bytes() == (tmp_path / "c.jsonl").read_bytes()


def test_append_ends_an_open_line_adds_what_is_new_and_repeats_nothing(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    run(write(tmp_path / "one.jsonl", GOOD), output)
    output.write_bytes(output.read_bytes().removesuffix(b"\n"))
    both = write(tmp_path / "both.jsonl", GOOD, GOOD | {"instance_id": "a-2"})
    report = run(both, output, append=True)
    assert (report.kept, report.written, report.skipped) == (1, 1, {"duplicate": 1})
    assert [row["metadata"]["instance_id"] for row in records(output)] == ["a-1", "a-2"]
    before = output.read_bytes()
    run(both, output, append=True)
    assert output.read_bytes() == before
    with pytest.raises(BadRows, match="another content"):
        run(write(tmp_path / "one.jsonl", GOOD | {"n": 2}), output, append=True)
    assert output.read_bytes() == before


def test_append_to_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").write_text("{}\n")
    with pytest.raises(BadRows, match="line 1: missing metadata"):
        run(write(tmp_path / "in.jsonl", GOOD), tmp_path / "out.jsonl", append=True)


def test_limit_counts_written_rows(tmp_path: Path) -> None:
    rows = [GOOD, GOOD, GOOD | {"instance_id": "a-2"}, GOOD | {"instance_id": "a-3"}]
    assert run(write(tmp_path / "in.jsonl", *rows), tmp_path / "out.jsonl", limit=2).written == 2
    assert [row["metadata"]["instance_id"] for row in records(tmp_path / "out.jsonl")] == ["a-1", "a-2"]


@pytest.mark.parametrize("link", ["same", "symlink", "hardlink"])
def test_the_output_may_not_be_the_input(link: str, tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", GOOD)
    output = source if link == "same" else tmp_path / "out.jsonl"
    if link == "symlink":
        output.symlink_to(source)
    elif link == "hardlink":
        os.link(source, output)
    with pytest.raises(DataError, match="is the input"):
        run(source, output)
    assert source.read_text() == line(GOOD)


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ("missing.jsonl", {}, "does not exist"),
        ("data.txt", {}, "ending"),
        ("empty.jsonl", {}, "no row"),
        ("folder", {}, "no subfolder"),
        ("good.jsonl", {"limit": 0}, "at least 1, got 0"),
        ("good.jsonl", {"split": "validation"}, "another split  1"),
    ],
)
def test_what_cannot_work_is_one_error_and_exit_code_two(
    given: str, options: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "good.jsonl", GOOD | {"split": "train"})
    (tmp_path / "data.txt").write_text("")
    (tmp_path / "empty.jsonl").write_text("\n")
    (tmp_path / "folder").mkdir()
    flags = [text for key, value in options.items() for text in (f"--{key}", str(value))]
    assert main(["--input", str(tmp_path / given), "--output", str(tmp_path / "out.jsonl"), *flags]) == 2
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error
    assert not (tmp_path / "out.jsonl").exists()


def test_a_full_disk_leaves_the_old_output_and_no_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    source, output = write(tmp_path / "in.jsonl", GOOD), tmp_path / "out.jsonl"
    output.write_text("old\n")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match="No space left"):
        run(source, output)
    assert output.read_text() == "old\n"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_folder_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", GOOD)
    with pytest.raises(DataError, match="cannot convert"):
        run(source, source / "out.jsonl")
    with pytest.raises(DataError, match="is no file"):
        run(source, tmp_path)

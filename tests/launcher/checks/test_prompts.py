from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.checks.prompts import Asked, check_held_out, check_prompts, read_asked
from launcher.preflight import Status


def task(root: Path, name: str) -> None:
    (root / name).mkdir(parents=True)
    (root / name / "task.toml").write_text("")


def test_prompts_with_their_tasks_pass(rows: Callable[..., Path], tmp_path: Path) -> None:
    for name in ("a", "b"):
        task(tmp_path / "tasks", name)
    assert check_prompts(rows("a", "b"), tmp_path / "tasks", 2).status is Status.OK


def test_tasks_that_are_the_agent_servers_are_not_looked_for_here(rows: Callable[..., Path]) -> None:
    assert check_prompts(rows("a", "b"), None, 2).status is Status.OK


def test_fewer_prompts_than_a_batch_fail_with_both_numbers(rows: Callable[..., Path]) -> None:
    finding = check_prompts(rows("a", "b", "c"), None, 4)
    assert finding.status is Status.FAILURE
    assert "3 prompts, a batch takes 4" in finding.sentence
    assert "--rollout-batch-size 3" in finding.way_out


def test_rows_that_are_held_out_fill_no_batch_here_and_are_trained_on_by_miles(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    splits = {"a": "train", "b": "train", "c": "test"}
    lines = [json.dumps({"prompt": "p", "metadata": {"instance_id": i, "split": split}}) for i, split in splits.items()]
    rows.write_text("\n".join(lines))
    finding = check_prompts(rows, None, 3, holds_out=True)
    assert finding.status is Status.FAILURE
    assert "2 prompts besides 1 of the split test, which are held out, a batch takes 3" in finding.sentence
    assert "--rollout-batch-size 2" in finding.way_out
    assert check_prompts(rows, None, 2, holds_out=True).status is Status.OK
    (warned,) = check_held_out(rows)
    assert warned.status is Status.WARNING
    assert "1 of 3 rows" in warned.sentence and "--split train" in warned.way_out


def test_rows_of_which_none_is_held_out_are_no_warning(rows: Callable[..., Path], tmp_path: Path) -> None:
    assert check_held_out(rows("a")) == []
    assert check_held_out(tmp_path / "none.jsonl") == []


def test_prompts_without_their_tasks_fail_by_name(rows: Callable[..., Path], tmp_path: Path) -> None:
    task(tmp_path / "tasks", "a")
    finding = check_prompts(rows("a", "lost"), tmp_path / "tasks", 1)
    assert finding.status is Status.FAILURE
    assert "1 of 2 tasks" in finding.sentence and "lost" in finding.sentence


def test_a_missing_task_folder_fails(rows: Callable[..., Path], tmp_path: Path) -> None:
    finding = check_prompts(rows("a"), tmp_path / "none", 1)
    assert finding.status is Status.FAILURE
    assert "not a folder" in finding.sentence


def test_a_bad_prompt_file_fails_and_has_no_ids(tmp_path: Path) -> None:
    assert check_prompts(tmp_path / "none.jsonl", None, 1).status is Status.FAILURE
    (tmp_path / "bad.jsonl").write_text("{\n")
    assert check_prompts(tmp_path / "bad.jsonl", None, 1).status is Status.FAILURE
    assert read_asked(tmp_path / "bad.jsonl") == Asked()


def test_an_instance_id_that_comes_twice_fails(rows: Callable[..., Path]) -> None:
    finding = check_prompts(rows("a", "b", "a"), None, 1)
    assert finding.status is Status.FAILURE
    assert "'a' is on line 1 already" in finding.sentence


def test_every_task_and_each_agent_once_is_asked_for(rows: Callable[..., Path]) -> None:
    assert read_asked(rows("a", "b")) == Asked(("a", "b"), ("shell",))


@pytest.mark.parametrize("name", ["", None, 7])
def test_an_agent_name_that_is_none_fails_with_its_line(tmp_path: Path, name: object) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"prompt": "p", "metadata": {"instance_id": "a", "agent_name": name}}))
    finding = check_prompts(rows, None, 1)
    assert finding.status is Status.FAILURE
    assert f"line 1 ({name!r})" in finding.sentence
    assert read_asked(rows) == Asked(("a",))

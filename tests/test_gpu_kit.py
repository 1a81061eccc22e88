"""What the run on a real GPU is prepared with (benchmarks/gpu): the taught conversations, the archives' size."""

from __future__ import annotations

import itertools
import random
import subprocess
import tarfile
from pathlib import Path

import pytest

from benchmarks.gpu import newer, pack
from benchmarks.gpu.checkpoint import TURNS, Task, conversation, encoded, make_tokenizer, read_tasks
from tasks.folder import write_tasks

TASKS = [Task("Make a directory called src.", "mkdir src"), Task("Delete the file a.txt.", "rm a.txt")]


def test_a_conversation_is_one_the_shell_agent_could_have_had() -> None:
    chance = random.Random(0)
    for task in TASKS * 20:
        messages = conversation(task, TASKS, chance)
        roles = [message["role"] for message in messages]
        answers = [message["content"] for message in messages if message["role"] == "assistant"]
        assert messages[0] == {"role": "user", "content": task.instruction}
        assert all(left != right for left, right in itertools.pairwise(roles))
        assert 1 <= len(answers) <= TURNS
        assert all(answer.startswith("```bash\n") and answer.endswith("\n```") for answer in answers)
        solved = [task.solution in answer for answer in answers]
        assert not any(solved[:-1]), "a command that works ends the episode"


def test_what_is_taught_is_the_answers_and_what_ends_them() -> None:
    tokenizer = make_tokenizer([f"{task.instruction} {task.solution}" for task in TASKS] * 50)
    messages = [
        {"role": "user", "content": "Delete the file a.txt."},
        {"role": "assistant", "content": "```bash\nls\n```"},
        {"role": "user", "content": "Exit code 1."},
        {"role": "assistant", "content": "```bash\nrm a.txt\n```"},
    ]
    ids, marks = encoded(messages, tokenizer)
    taught = tokenizer.decode([token for token, mark in zip(ids, marks, strict=True) if mark])
    assert taught == "</think>```bash\nls\n```<|user|></think>```bash\nrm a.txt\n```<|user|>"
    whole = tokenizer.apply_chat_template(messages, tokenize=False)
    assert tokenizer.decode(ids) == f"{whole}<|user|>"


def test_tasks_are_read_with_their_solutions(tmp_path: Path) -> None:
    write_tasks(tmp_path, ("mkdir",), "train", 2, 0)
    tasks = read_tasks(tmp_path)
    tasks_folder = next(tmp_path.iterdir()).name
    assert len(tasks) == 2 and all(task.solution.startswith("mkdir ") for task in tasks)
    with pytest.raises(ValueError, match="holds no Harbor task"):
        read_tasks(tmp_path / tasks_folder)


def test_an_archive_too_large_for_one_transfer_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work" / "miles").mkdir(parents=True)
    (tmp_path / "work" / "miles" / "file").write_bytes(random.Random(0).randbytes(1000))
    monkeypatch.setattr(pack, "MOST_BYTES", 500)
    with pytest.raises(ValueError, match="a transfer takes 500"):
        pack.archive(tmp_path / "work", tmp_path, "part", ("miles",), ())


def test_a_newer_miles_is_packed_from_its_git_folder_without_what_is_not_committed(tmp_path: Path) -> None:
    git = ("git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b")
    for name in ("miles/__init__.py", "miles_plugins/__init__.py", "train.py", "train_async.py", "docs/text.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"# {name}")
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "--quiet", "-m", "all"], check=True)
    (tmp_path / "miles" / "draft.py").write_text("")
    assert newer.main(["--git", str(tmp_path), "--out", str(tmp_path / "out")]) == 0
    with tarfile.open(tmp_path / "out" / "newer.tar.xz") as packed:
        files = {member.name for member in packed if member.isfile()}
        packed.extractall(tmp_path / "packages", filter="tar")
    assert files == {
        *("newer/miles/__init__.py", "newer/miles_plugins/__init__.py", "newer/train.py", "newer/train_async.py"),
        *("newer/COMMIT", *newer.STUBS),
    }
    assert (tmp_path / "packages" / "newer" / "train.py").read_text() == "# train.py"
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    assert (tmp_path / "packages" / "newer" / "COMMIT").read_text() == head

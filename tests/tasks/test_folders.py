"""Task folders are deterministic, valid for Harbor, atomic, and share nothing between training and held-out."""

import re
from itertools import chain
from pathlib import Path

import pytest
from harbor.models.task.task import Task

from tasks.__main__ import main
from tasks.families import EASY, FAMILIES, make
from tasks.folder import TaskFolderError, write_task, write_tasks
from tasks.instance import Instance, UnknownFamily
from tasks.words import SPLITS, VOCABULARIES, Vocabulary


def tree(root: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(root)): (path.stat().st_mode, path.read_bytes())
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_the_same_arguments_write_the_same_bytes(tmp_path: Path) -> None:
    first = write_tasks(tmp_path / "a", FAMILIES, "train", 3, 7)
    assert first == write_tasks(tmp_path / "b", FAMILIES, "train", 3, 7)
    assert tree(tmp_path / "a") == tree(tmp_path / "b")
    assert len(first) == len(set(first)) == 48
    assert first != write_tasks(tmp_path / "c", FAMILIES, "train", 3, 8)


def test_a_second_run_touches_nothing_and_repairs_what_was_changed(tmp_path: Path) -> None:
    ids = write_tasks(tmp_path, EASY, "train", 2, 0)
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    before = tree(tmp_path)
    write_tasks(tmp_path, EASY, "train", 2, 0)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == stamps

    (tmp_path / ids[0] / "tests" / "test.sh").write_text("echo 1 >/logs/verifier/reward.txt\n")
    (tmp_path / ids[1] / "tests" / "extra").write_text("left over\n")
    (tmp_path / ids[2] / "solution" / "solve.sh").chmod(0o644)
    write_tasks(tmp_path, EASY, "train", 2, 0)
    assert tree(tmp_path) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(ids)


def test_partial_credit_replaces_the_folder_of_the_same_name(tmp_path: Path) -> None:
    name = write_task(tmp_path, "sort", "train", 5)
    plain = tree(tmp_path)
    assert write_task(tmp_path, "sort", "train", 5, partial_credit=True) == name
    assert tree(tmp_path) != plain
    write_task(tmp_path, "sort", "train", 5)
    assert tree(tmp_path) == plain


def test_harbor_accepts_every_folder_and_reads_the_bare_sentence(tmp_path: Path) -> None:
    for split in SPLITS:
        for instance_id in write_tasks(tmp_path, FAMILIES, split, 1, 0):
            task = Task(tmp_path / instance_id)
            family, _, seed = instance_id.split("-")
            assert Task.is_valid_dir(tmp_path / instance_id)
            assert task.instruction == make(family, split, int(seed)).instruction
            assert task.config.metadata["family"] == family and task.config.metadata["split"] == split
            assert (task.config.agent.timeout_sec, task.config.verifier.timeout_sec) == (60.0, 30.0)


def names_and_values(vocabulary: Vocabulary) -> set[str]:
    return {*vocabulary.files, *vocabulary.words, *vocabulary.folders, *vocabulary.endings}


def used(instance: Instance) -> set[str]:
    text = " ".join([instance.instruction, *instance.files, *instance.files.values(), *instance.folders])
    return set(re.findall(r"[A-Za-z]+", text))


@pytest.mark.parametrize("family", FAMILIES)
def test_training_and_held_out_instances_share_no_name_and_no_value(family: str) -> None:
    train, test = names_and_values(VOCABULARIES["train"]), names_and_values(VOCABULARIES["test"])
    assert train.isdisjoint(test)
    # `script` is a held-out file name and also a word of one sentence.
    sentence = {"script"} if family == "chmod" else set[str]()
    seen_train = set(chain.from_iterable(used(make(family, "train", seed)) for seed in range(200)))
    seen_test = set(chain.from_iterable(used(make(family, "test", seed)) for seed in range(200)))
    assert (seen_train - sentence).isdisjoint(test)
    assert (seen_test - sentence).isdisjoint(train)
    instructions = [{make(family, split, seed).instruction for seed in range(200)} for split in SPLITS]
    assert instructions[0].isdisjoint(instructions[1])


def test_instances_differ_while_the_family_has_different_ones(tmp_path: Path) -> None:
    folders = len(VOCABULARIES["train"].folders)
    instructions = [Task(tmp_path / name).instruction for name in write_tasks(tmp_path, ["mkdir"], "train", folders, 0)]
    assert len(set(instructions)) == folders
    assert len(set(write_tasks(tmp_path, ["mkdir"], "train", 3 * folders, 0))) == 3 * folders


def test_what_does_not_exist_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(UnknownFamily, match=r"'chomd'.*mkdir, rename"):
        write_tasks(out, ["mkdir", "chomd"], "train", 2, 0)
    with pytest.raises(UnknownFamily, match="999999"):
        write_task(out, "mkdir", "train", 1_000_000)
    with pytest.raises(ValueError, match="got 0"):
        write_tasks(out, ["mkdir"], "train", 0, 0)
    assert not out.exists()


def test_a_root_that_is_a_file_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(TaskFolderError, match="out"):
        write_task(tmp_path / "out", "mkdir", "train", 0)


def test_the_command_line_writes_groups_and_names_bad_families(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--out", str(tmp_path / "out"), "--families", "easy", "sort", "--count", "1", "--split", "test"]) == 0
    assert len(list((tmp_path / "out").iterdir())) == 7
    assert main(["--out", str(tmp_path / "two"), "--families", "grep,sort", "--count", "1"]) == 0
    assert len(list((tmp_path / "two").iterdir())) == 2
    assert main(["--out", str(tmp_path / "out"), "--families", "nothing"]) == 2
    assert "nothing" in capsys.readouterr().err


def test_an_unset_variable_as_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["--out", "", "--count", "1"]) == 2
    assert not list(tmp_path.iterdir())
    assert main(["--out", ".", "--families", "mkdir", "--count", "1"]) == 0
    assert len(list(tmp_path.iterdir())) == 1

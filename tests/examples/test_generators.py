"""The example collections are deterministic, share nothing between training and held-out, and can be solved."""

import asyncio
import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from harbor.models.task.task import Task

from examples.log_fields.families import LOG_FIELDS
from examples.log_fields.formats import VOCABULARIES, Vocabulary
from examples.python_repair.families import PYTHON_REPAIR
from examples.python_repair.functions import functions
from tasks.collection import Collection
from tasks.folder import write_task, write_tasks
from tasks.instance import UnknownFamily
from tasks.words import SPLITS
from tests.docs.walkthrough import ROOT
from tests.tasks.test_folders import tree
from tests.tasks.test_oracle_and_nop import reward

COLLECTIONS = (LOG_FIELDS, PYTHON_REPAIR)
IDS = [collection.name for collection in COLLECTIONS]


def write_all(root: Path, collection: Collection, seed: int, count: int = 1) -> list[str]:
    return [
        instance_id
        for split in SPLITS
        for instance_id in write_tasks(
            root, collection.groups["all"], split, count, seed, partial_credit=True, collection=collection
        )
    ]


@pytest.mark.parametrize("collection", COLLECTIONS, ids=IDS)
def test_the_same_arguments_write_the_same_bytes(collection: Collection, tmp_path: Path) -> None:
    first = write_all(tmp_path / "a", collection, 7)
    assert first == write_all(tmp_path / "b", collection, 7)
    assert tree(tmp_path / "a") == tree(tmp_path / "b")
    assert first != write_all(tmp_path / "c", collection, 8)
    for instance_id in first:
        task = Task(tmp_path / "a" / instance_id)
        assert task.config.metadata["split"] in SPLITS
        assert task.config.metadata["family"] in collection.groups["all"]


@pytest.mark.parametrize("collection", COLLECTIONS, ids=IDS)
def test_training_and_held_out_instances_share_no_text(collection: Collection) -> None:
    texts = [
        {
            text
            for family in collection.groups["all"]
            for seed in range(12)
            for text in seen(collection, family, split, seed)
        }
        for split in SPLITS
    ]
    assert texts[0].isdisjoint(texts[1])


def seen(collection: Collection, family: str, split: str, seed: int) -> list[str]:
    """The sentence and every line of the files of an instance, without lines that say nothing of their own."""
    instance = collection.make(family, "train" if split == "train" else "test", seed)
    lines = [line.strip() for text in instance.files.values() for line in text.splitlines()]
    return [instance.instruction, *(line for line in lines if re.search(r"def |\d{4}|\[\d", line))]


def test_training_and_held_out_logs_share_no_value() -> None:
    def values(words: Vocabulary) -> set[str]:
        found: set[str] = set()
        for field in fields(words):
            value = getattr(words, field.name)
            found |= {value} if isinstance(value, str) else {str(item) for item in value}
        return found

    assert values(VOCABULARIES["train"]).isdisjoint(values(VOCABULARIES["test"]))


def test_training_and_held_out_functions_share_neither_name_nor_body() -> None:
    train, test = (functions(split) for split in SPLITS)
    names, bodies = (
        [
            {re.sub(r"\s+", " ", function.code).partition("(")[part] for group in split.values() for function in group}
            for split in (train, test)
        ]
        for part in (0, 2)
    )
    assert names[0].isdisjoint(names[1]) and bodies[0].isdisjoint(bodies[1])
    assert set(train) == set(test) == set(PYTHON_REPAIR.groups["all"])


@pytest.mark.parametrize("collection", COLLECTIONS, ids=IDS)
def test_what_does_not_exist_is_refused(collection: Collection) -> None:
    with pytest.raises(UnknownFamily, match=f"there are: {collection.groups['all'][0]}"):
        collection.make("nothing", "train", 0)
    with pytest.raises(UnknownFamily, match="999999"):
        collection.make(collection.groups["all"][0], "train", 1_000_000)


@pytest.mark.parametrize("collection", COLLECTIONS, ids=IDS)
def test_the_solution_earns_one_and_doing_nothing_earns_zero(collection: Collection, tmp_path: Path) -> None:
    """By the command of the README, one task of every family and split."""
    check(tmp_path, len(write_all(tmp_path / "tasks", collection, 3)))


@pytest.mark.long
@pytest.mark.parametrize("collection", COLLECTIONS, ids=IDS)
def test_many_solutions_earn_one(collection: Collection, tmp_path: Path) -> None:
    check(tmp_path, len(write_all(tmp_path / "tasks", collection, 4, count=10)))


def check(folder: Path, tasks: int) -> None:
    argv = [sys.executable, "agent_server.py", "check", "--environment", "local", "--format", "json"]
    argv += ["--tasks-dir", str(folder / "tasks"), "--max-concurrent", "4"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    report = json.loads(done.stdout)
    assert done.returncode == 0, report["broken"]
    assert report["checked"] == tasks


def test_a_repair_that_forges_its_reward_is_not_paid(tmp_path: Path) -> None:
    task = tmp_path / "tasks" / write_task(tmp_path / "tasks", "operator", "train", 0, collection=PYTHON_REPAIR)
    agent = {"import_path": "tests.examples.forging_agent:RepairForger"}
    assert asyncio.run(reward(task, agent, tmp_path / "trials")) == 0
    assert (next((tmp_path / "trials").iterdir()) / "verifier" / "reward.txt").read_text() == "0.0\n"

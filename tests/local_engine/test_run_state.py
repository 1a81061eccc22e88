"""What a resume may change and what it must repeat; the round trip itself is shown end to end."""

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from local_engine import checkpoint
from local_engine.checkpoint import DataPosition, TrainerState
from local_engine.config import LocalRunConfig
from local_engine.data import RunData, prepare_data
from local_engine.loop import CANNOT_WORK, run
from local_engine.run_state import FREE_TO_CHANGE, fingerprint, load_start
from miles_data.prompts import Prompt
from tests.end_to_end.run_parts import base_config

DATA = RunData([Prompt("text", {"instance_id": "a"}, 1)], [], Path("tasks"))
CONFIG: LocalRunConfig = base_config(Path("run"), Path("model"), Path("tasks"), Path("rows.jsonl"))


def test_names_free_to_change_are_options() -> None:
    assert {f.name for f in fields(LocalRunConfig)} >= FREE_TO_CHANGE


def test_what_alters_a_step_alters_the_fingerprint() -> None:
    before = fingerprint(CONFIG, DATA)
    for change in ({"lr": 1.0}, {"seed": 5}, {"temperature": 0.3}, {"lora_rank": 2}, {"deterministic": False}):
        after = fingerprint(replace(CONFIG, **change), DATA)
        assert {name for name in after if after[name] != before[name]} == set(change)


def test_length_place_and_display_do_not() -> None:
    other = replace(CONFIG, run_id="x", save_dir=Path("other"), num_rollout=99, save_interval=7, threads=3)
    assert fingerprint(other, DATA) == fingerprint(CONFIG, DATA)


def test_other_prompts_are_another_run() -> None:
    other = RunData([Prompt("text", {"instance_id": "b"}, 1)], [], Path("tasks"))
    before, after = fingerprint(CONFIG, DATA), fingerprint(CONFIG, other)
    assert {name for name in after if after[name] != before[name]} == {"prompts"}


@pytest.fixture
def stopped(tmp_path: Path) -> LocalRunConfig:
    """The run of made tasks that left a checkpoint, asked to go on."""
    config = replace(
        base_config(tmp_path / "run", tmp_path / "model", tmp_path, tmp_path),
        prompt_data=None,
        harbor_tasks_dir=None,
        families=("mkdir", "copy"),
        train_tasks_per_family=2,
        heldout_tasks_per_family=1,
    )
    marks = json.dumps(fingerprint(config, prepare_data(config)))
    state = TrainerState({}, {}, {}, DataPosition(0, 2, config.seed), [], marks)
    checkpoint.save(config.save_dir, 0, state, lambda folder: None)
    return replace(config, load_dir=config.save_dir, resume=True)


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 5}, "seed was 0, is 5"),
        ({"train_tasks_per_family": 3}, "train_tasks_per_family was 2, is 3"),
        ({"lr": 1.0}, "lr was 0.003, is 1.0"),
    ],
)
def test_a_refused_resume_changes_nothing(
    stopped: LocalRunConfig, change: dict[str, Any], named: str, capfd: pytest.CaptureFixture[str]
) -> None:
    before = contents(stopped.save_dir)
    assert run(replace(stopped, **change)) == CANNOT_WORK
    said = " ".join("".join(capfd.readouterr()).split())
    assert named in said and "repeat them" in said
    assert contents(stopped.save_dir) == before
    assert load_start(stopped) is not None


def test_a_resume_without_the_prompts_it_was_given_makes_no_tasks(stopped: LocalRunConfig, tmp_path: Path) -> None:
    marks = json.dumps(fingerprint(stopped, DATA))
    state = TrainerState({}, {}, {}, DataPosition(0, 2, stopped.seed), [], marks)
    other = tmp_path / "given"
    checkpoint.save(other, 0, state, lambda folder: None)
    assert run(replace(stopped, save_dir=other, load_dir=other)) == CANNOT_WORK
    assert not (other / "tasks").exists() and not (other / "data").exists()

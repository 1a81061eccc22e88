"""What a resume may change and what it must repeat; the round trip itself is shown end to end."""

from dataclasses import fields, replace
from pathlib import Path

from local_engine.config import LocalRunConfig
from local_engine.data import RunData
from local_engine.run_state import FREE_TO_CHANGE, fingerprint
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

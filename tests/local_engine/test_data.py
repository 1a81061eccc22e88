"""The prompts of a run and the order they come in."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from local_engine.config import LocalRunConfig
from local_engine.data import PromptStream, made_train_ids, prepare_data
from miles_data.findings import DataError
from miles_data.prompts import Prompt
from tests.end_to_end.run_parts import base_config, write_prompts, write_tasks

PROMPTS = [Prompt(f"text {n}", {"instance_id": f"t{n}"}, n + 1) for n in range(5)]


@pytest.fixture
def config(tmp_path: Path) -> LocalRunConfig:
    tasks = write_tasks(tmp_path / "tasks", "a", "b", "c")
    return base_config(tmp_path / "run", tmp_path / "model", tasks, tmp_path / "rows.jsonl")


def take(stream: PromptStream, count: int) -> list[str]:
    return [stream.take().instance_id for _ in range(count)]


def test_every_epoch_has_every_prompt_once_in_another_order() -> None:
    stream = PromptStream(PROMPTS, seed=1)
    epochs = [take(stream, 5) for _ in range(6)]
    assert all(Counter(e) == Counter(p.instance_id for p in PROMPTS) for e in epochs)
    assert len(set(map(tuple, epochs))) > 3
    every = [name for epoch in epochs for name in epoch]
    assert take(PromptStream(PROMPTS, seed=2), 30) != every == take(PromptStream(PROMPTS, seed=1), 30)


@pytest.mark.parametrize("used", [0, 1, 4, 5, 6, 13])
def test_a_position_is_gone_on_from_exactly(used: int) -> None:
    whole = take(PromptStream(PROMPTS, seed=1), 30)
    first = PromptStream(PROMPTS, seed=1)
    take(first, used)
    # The position has the seed in it: another seed on resume does not change the order.
    assert take(PromptStream(PROMPTS, seed=9, position=first.position), 30 - used) == whole[used:]


def test_rows_of_the_split_test_are_held_out(config: LocalRunConfig) -> None:
    assert config.prompt_data is not None
    write_prompts(config.prompt_data, "a", "b")
    write_prompts(config.prompt_data, "c", split="test")
    data = prepare_data(config)
    assert [p.instance_id for p in data.train] == ["a", "b"]
    assert [p.instance_id for p in data.heldout] == ["c"]
    assert data.tasks_dir == config.harbor_tasks_dir


def test_rows_without_a_task_folder_are_named_with_their_line(config: LocalRunConfig) -> None:
    assert config.prompt_data is not None
    write_prompts(config.prompt_data, "a", "nowhere", "b")
    with pytest.raises(DataError, match=r"1 of 3 prompts.*nowhere \(line 2\).*--harbor-tasks-dir"):
        prepare_data(config)
    # Another machine's server has tasks that are not here.
    assert len(prepare_data(replace(config, harbor_tasks_dir=None)).train) == 3


def test_fewer_prompts_than_a_rollout_takes_are_refused(config: LocalRunConfig) -> None:
    assert config.prompt_data is not None
    write_prompts(config.prompt_data, "a")
    write_prompts(config.prompt_data, "b", split="test")
    with pytest.raises(DataError, match="1 training prompts, a rollout takes 2"):
        prepare_data(config)


def with_made_tasks(config: LocalRunConfig) -> LocalRunConfig:
    return replace(
        config,
        prompt_data=None,
        harbor_tasks_dir=None,
        families=("mkdir", "copy"),
        train_tasks_per_family=3,
        heldout_tasks_per_family=2,
    )


def test_without_prompts_tasks_are_made(config: LocalRunConfig) -> None:
    made = with_made_tasks(config)
    data = prepare_data(made)
    assert data.tasks_dir is not None
    assert (len(data.train), len(data.heldout)) == (6, 4)
    assert not {p.instance_id for p in data.train} & {p.instance_id for p in data.heldout}
    for prompt in data.train + data.heldout:
        assert (data.tasks_dir / prompt.instance_id / "task.toml").is_file()
        assert prompt.metadata["agent_name"] == "shell"
    again = prepare_data(made)
    assert again == data
    assert [p.instance_id for p in data.train] == made_train_ids(made)


def test_tasks_of_a_run_with_other_options_in_the_same_folder_give_no_prompts(config: LocalRunConfig) -> None:
    made = with_made_tasks(config)
    before = prepare_data(made)
    other = prepare_data(replace(made, families=("copy",), train_tasks_per_family=2, heldout_tasks_per_family=1))
    assert (len(other.train), len(other.heldout)) == (2, 1)
    rows = config.save_dir / "data" / "train.jsonl"
    assert len(rows.read_text().splitlines()) == 2
    assert prepare_data(made) == before
    reseeded = prepare_data(replace(made, seed=made.seed + 1))
    assert (len(reseeded.train), len(reseeded.heldout)) == (6, 4)


def test_unreadable_rows_are_refused(config: LocalRunConfig) -> None:
    assert config.prompt_data is not None
    config.prompt_data.write_text(json.dumps({"prompt": "x", "metadata": {}}) + "\n")
    with pytest.raises(DataError):
        prepare_data(config)

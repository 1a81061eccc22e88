"""Data sets of the datasets library: saved ones, folders of files, and names.

There is no hub here: where a name is given, a stub stands in for the library's calls that would ask it, and answers
with a data set on this disk.
"""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from download_and_process_data import main
from miles_data.findings import BadRows, DataError
from tests.miles_data.rows_on_disk import ids, metadata, run, write

ROWS = [{"instance_id": f"a-{n}", "problem_statement": "x", "created_at": "2024-02-03T04:05:06Z"} for n in range(3)]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


def splits_of(output: Path) -> list[tuple[str, str]]:
    return [(fields["instance_id"], fields["split"]) for fields in metadata(output)]


def test_a_saved_data_set_converts_with_the_split_that_is_asked_for(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    train, test = datasets.Dataset.from_list(ROWS[:2]), datasets.Dataset.from_list(ROWS[2:])
    train.save_to_disk(str(tmp_path / "one"))
    run(tmp_path / "one", output)
    assert splits_of(output) == [("a-0", "train"), ("a-1", "train")]
    datasets.DatasetDict({"train": train, "test": test}).save_to_disk(str(tmp_path / "both"))
    report = run(tmp_path / "both", output)
    assert splits_of(output) == [("a-0", "train"), ("a-1", "train")] and "left out: test" in str(report)
    run(tmp_path / "both", output, split="test")
    assert splits_of(output) == [("a-2", "test")]
    with pytest.raises(DataError, match="has no split dev; it has train, test"):
        run(tmp_path / "both", output, split="dev")


def test_a_folder_of_files_keeps_text_that_looks_like_a_date(tmp_path: Path) -> None:
    folder, output = tmp_path / "data", tmp_path / "out.jsonl"
    folder.mkdir()
    write(folder / "train-00000.jsonl", ROWS[0])
    write(folder / "train-00001.jsonl", ROWS[1], {"instance_id": "a-9"})
    write(folder / "test.jsonl", ROWS[2])
    with pytest.raises(BadRows, match=r"train-00001.jsonl line 2: missing prompt"):
        run(folder, output)
    write(folder / "train-00001.jsonl", ROWS[1])
    run(folder, output)
    assert ids(output) == ["a-0", "a-1"]
    assert {fields["created_at"] for fields in metadata(output)} == {"2024-02-03T04:05:06Z"}
    run(folder, output, split="test")
    assert splits_of(output) == [("a-2", "test")]


def test_a_folder_of_parquet_and_its_card_choose_the_configuration(tmp_path: Path) -> None:
    folder, output = tmp_path / "data", tmp_path / "out.jsonl"
    (folder / "lite").mkdir(parents=True)
    for number, name in enumerate(("train", "lite/train")):
        pq.write_table(pa.Table.from_pylist([ROWS[number]]), folder / f"{name}.parquet")
    configs = "- config_name: full\n  data_files: train.parquet\n- config_name: lite\n  data_files: lite/*\n"
    (folder / "README.md").write_text(f"---\nconfigs:\n{configs}---\n")
    run(Path(f"{folder}#lite"), output)
    assert ids(output) == ["a-1"]
    with pytest.raises(DataError, match=r"cannot be read as a data set: .*full"):
        run(folder, output)


def test_a_folder_of_arrow_files_is_streamed_by_the_library(tmp_path: Path) -> None:
    folder, output = tmp_path / "data", tmp_path / "out.jsonl"
    folder.mkdir()
    table = pa.Table.from_pylist(ROWS)
    with pa.ipc.new_stream(folder / "train.arrow", table.schema) as writer:
        writer.write_table(table)
    run(folder, output, limit=2)
    assert splits_of(output) == [("a-0", "train"), ("a-1", "train")]


def test_a_name_is_streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "hub"
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist(ROWS), folder / "train.parquet")
    real, asked = datasets.load_dataset, list[tuple[Any, ...]]()
    url = f"hf://datasets/org/name@main/{folder}/train.parquet"
    builder = SimpleNamespace(config=SimpleNamespace(data_files={"train": [url]}))

    def load(name: str, config: str | None, split: str, streaming: bool) -> Any:
        asked.append((name, config, split, streaming))
        return real(str(folder), split=split, streaming=streaming)

    monkeypatch.setattr(datasets, "load_dataset_builder", lambda name, config: builder)
    monkeypatch.setattr(datasets, "load_dataset", load)
    report = run(Path("org/name#lite"), tmp_path / "out.jsonl", limit=2)
    assert ids(tmp_path / "out.jsonl") == ["a-0", "a-1"] and report.written == 2
    assert asked == [("org/name", "lite", "train", True)]


def test_json_lines_of_a_name_are_read_as_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe("/hub/train.jsonl", "".join(json.dumps(row) + "\n" for row in ROWS).encode())

    builder = SimpleNamespace(config=SimpleNamespace(data_files={"train": ["memory://hub/train.jsonl"]}))
    monkeypatch.setattr(datasets, "load_dataset_builder", lambda name, config: builder)
    run(Path("org/name"), tmp_path / "out.jsonl")
    assert [fields["created_at"] for fields in metadata(tmp_path / "out.jsonl")] == ["2024-02-03T04:05:06Z"] * 3


@pytest.mark.parametrize("name", ["SWE-Gym/SWE-Gym", "taskss"])
def test_an_unreachable_hub_is_one_sentence_that_says_what_is_not_here(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(name: str, config: str | None) -> None:
        raise ConnectionError(f"Couldn't reach '{name}' on the Hub (LocalEntryNotFoundError)")

    monkeypatch.setattr(datasets, "load_dataset_builder", fail)
    assert main(["--input", name, "--output", str(tmp_path / "out.jsonl")]) == 2
    error = capsys.readouterr().err
    start = f"error: {name} is no file or folder here, and the Hugging Face hub cannot be reached for {name}: "
    assert error.startswith(start)
    assert error.count("\n") == 1

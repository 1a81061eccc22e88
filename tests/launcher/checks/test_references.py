from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo  # pyright: ignore[reportPrivateUsage]
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, TensorProperties, TensorStorageMetadata

from launcher.checks.references import check_reference, is_converted, write_marker
from launcher.preflight import Status

FLASH = {"num_hidden_layers": 47, "hidden_size": 2048}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A complete conversion, without a word of which model."""
    root = tmp_path / "reference"
    release = root / "release"
    release.mkdir(parents=True)
    (root / "latest_checkpointed_iteration.txt").write_text("release\n")
    for name in ("metadata.json", "common.pt", "__0_0.distcp"):
        (release / name).write_bytes(b"x")
    return root


def write_table_of_tensors(folder: Path, hidden: int, shards: Sequence[str] = ()) -> None:
    """As PyTorch writes it into a checkpoint of this hidden size, whose tensors are in these files."""
    size = torch.Size((154880, hidden))
    tensor = TensorStorageMetadata(TensorProperties(dtype=torch.bfloat16), size, [])
    stored = {MetadataIndex(f"tensor {shard}", torch.Size((0, 0)), 0): _StorageInfo(shard, 0, 1) for shard in shards}
    table = Metadata({"embedding.word_embeddings.weight": tensor}, storage_data=stored)
    (folder / "release" / ".metadata").write_bytes(pickle.dumps(table))


def test_a_complete_conversion_of_the_right_model_is_not_converted_again(folder: Path) -> None:
    write_marker(folder, "zai-org/GLM-4.7-Flash", FLASH)
    converted, reason = is_converted(folder, FLASH, "GLM-4.7-Flash")
    assert converted and "num_hidden_layers, hidden_size" in reason
    assert check_reference(folder, False, FLASH).status is Status.OK


def test_a_conversion_that_does_not_say_of_which_model_is_taken_and_says_so(folder: Path) -> None:
    converted, reason = is_converted(folder, FLASH)
    assert converted and "nothing in it says of which model" in reason


@pytest.mark.parametrize(("hidden", "expected"), [(2048, True), (6144, False)])
def test_without_a_marker_the_table_of_tensors_tells_the_hidden_size(folder: Path, hidden: int, expected: bool) -> None:
    write_table_of_tensors(folder, hidden)
    converted, reason = is_converted(folder, FLASH)
    assert converted is expected
    assert "hidden_size" in reason


def test_reading_a_table_of_tensors_runs_nothing_in_it(folder: Path, tmp_path: Path) -> None:
    hostile = f"cos\nmkdir\n(V{tmp_path}/made\ntR.".encode()
    (folder / "release" / ".metadata").write_bytes(hostile)
    assert is_converted(folder, FLASH)[0]
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("tracker", [None, "", "39", "release2"])
def test_a_reference_whose_tracker_is_missing_or_a_number_is_not_taken_as_converted(
    folder: Path, tracker: str | None
) -> None:
    path = folder / "latest_checkpointed_iteration.txt"
    path.unlink() if tracker is None else path.write_text(tracker)
    converted, reason = is_converted(folder, FLASH)
    assert not converted
    assert "latest_checkpointed_iteration.txt" in reason


@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("lost", ["metadata.json", "common.pt", "__0_0.distcp"])
def test_a_conversion_that_was_interrupted_is_done_again(folder: Path, lost: str, empty: bool) -> None:
    path = folder / "release" / lost
    path.write_bytes(b"") if empty else path.unlink()
    assert not is_converted(folder, FLASH)[0]
    finding = check_reference(folder, True, FLASH)
    assert finding.status is Status.OK
    assert "will be converted" in finding.sentence


@pytest.mark.parametrize("content", [b"", None])
def test_every_shard_that_the_table_names_must_be_there(folder: Path, content: bytes | None) -> None:
    write_table_of_tensors(folder, 2048, ["__0_0.distcp", "__1_0.distcp"])
    if content is not None:
        (folder / "release" / "__1_0.distcp").write_bytes(content)
    converted, reason = is_converted(folder, FLASH)
    assert not converted and "__1_0.distcp" in reason and "__0_0.distcp" not in reason
    (folder / "release" / "__1_0.distcp").write_bytes(b"x")
    assert is_converted(folder, FLASH)[0]


@pytest.mark.parametrize("marker", ["{", "[" * 100_000, "[]", '{"shape": 1}', '{"shape":' * 100_000])
def test_a_marker_that_cannot_be_read_is_a_reason_unless_the_table_vouches(folder: Path, marker: str) -> None:
    (folder / "converted_from.json").write_text(marker)
    converted, reason = is_converted(folder, FLASH)
    assert not converted and "converted_from.json" in reason
    write_table_of_tensors(folder, 2048)
    converted, reason = is_converted(folder, FLASH)
    assert converted and "converted_from.json" in reason


@pytest.mark.parametrize(
    "table", [b"x", b"\x80\x04", b"(" * 100_000, b"\x80\x04\x96\xff\xff\xff\xff\xff\xff\xff\x7f.", b"N."]
)
def test_a_table_that_cannot_be_read_tells_nothing(folder: Path, table: bytes) -> None:
    (folder / "release" / ".metadata").write_bytes(table)
    assert "nothing in it says of which model" in is_converted(folder, FLASH)[1]


def test_nothing_there_is_converted_unless_that_is_skipped(tmp_path: Path) -> None:
    assert check_reference(tmp_path / "none", True, FLASH).status is Status.OK
    finding = check_reference(tmp_path / "none", False, FLASH)
    assert finding.status is Status.FAILURE
    assert "--skip-prepare" in finding.way_out


def test_a_conversion_into_checkpoints_of_a_run_fails(folder: Path) -> None:
    (folder / "latest_checkpointed_iteration.txt").write_text("39")
    finding = check_reference(folder, True, FLASH)
    assert finding.status is Status.FAILURE
    assert "'39'" in finding.sentence and "--ref-load" in finding.way_out


def test_a_conversion_into_a_folder_of_something_else_fails(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    finding = check_reference(tmp_path, True, FLASH)
    assert finding.status is Status.FAILURE
    assert "thesis.tex" in finding.sentence
    assert check_reference(tmp_path / "thesis.tex", True, FLASH).status is Status.FAILURE


def test_a_conversion_of_another_model_is_neither_taken_nor_written_over(folder: Path) -> None:
    write_marker(folder, "zai-org/GLM-5.2", {"num_hidden_layers": 78, "hidden_size": 6144})
    assert not is_converted(folder, FLASH)[0]
    finding = check_reference(folder, True, FLASH, "GLM-4.7-Flash")
    assert finding.status is Status.FAILURE
    assert "num_hidden_layers 78, hidden_size 6144; GLM-4.7-Flash has 47 and 2048" in finding.sentence

"""Dumps are those of Miles, key by key, and a full disk costs a dump, not a run."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
import torch

from local_engine.dumps import DumpNotWritten, Dumps

DATA = Path(__file__).parent.parent / "data"


class Status(StrEnum):
    COMPLETED = "completed"


def real(name: str) -> Any:
    return torch.load(DATA / name, weights_only=True, map_location="cpu")


def read(path: Path) -> Any:
    return torch.load(path, weights_only=True)


def shape(value: Any) -> Any:
    """Key by key and type by type; of a list, the set of what its entries are."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return ["list", *sorted({json.dumps(shape(item), sort_keys=True) for item in value})]
    if isinstance(value, torch.Tensor):
        return f"tensor {value.dtype} {value.dim()}d"
    return type(value).__name__


def sample(**changes: Any) -> dict[str, Any]:
    return {**real("miles_rollout.pt")["samples"][0], **changes}


@pytest.mark.parametrize("name", ["miles_rollout.pt", "gpu_run/rollout_data/1.pt"])
def test_rollout_dump_of_the_samples_of_a_real_one_differs_only_by_its_metadata(tmp_path: Path, name: str) -> None:
    theirs = real(name)
    ours = read(Dumps(tmp_path).rollout(theirs["rollout_id"], theirs["samples"], {"seconds": 1.5}))
    assert ours.pop("metadata") == {"seconds": 1.5}
    assert ours == theirs
    assert shape(ours) == shape(theirs)


@pytest.mark.parametrize("name", ["miles_train.pt", "gpu_run/train_data/1_0.pt"])
def test_train_dump_of_the_data_of_a_real_one_is_the_same(tmp_path: Path, name: str) -> None:
    theirs = real(name)
    path = Dumps(tmp_path).train(theirs["rollout_id"], theirs["rank"], theirs["rollout_data"])
    ours = read(path)
    assert path == tmp_path / "train_data" / f"{theirs['rollout_id']}_0.pt"
    assert shape(ours) == shape(theirs)
    assert list(ours["rollout_data"]) == list(theirs["rollout_data"])
    for name in ("tokens", "loss_masks", "rollout_log_probs", "log_probs", "advantages", "returns"):
        for left, right in zip(ours["rollout_data"][name], theirs["rollout_data"][name], strict=True):
            assert torch.equal(left, right)


def test_files_have_the_names_that_miles_gives_them(tmp_path: Path) -> None:
    dumps = Dumps(tmp_path)
    dumps.rollout(3, [sample()], {})
    dumps.evaluation(3, [sample()])
    dumps.train(3, 0, {"rewards": [1.0]})
    dumps.trajectory(3, [{"instance_id": "a"}, {"instance_id": "b"}])
    files = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert files == ["rollout_data/3.pt", "rollout_data/eval_3.pt", "train_data/3_0.pt", "trajectory/3.jsonl"]


def test_trajectory_is_one_json_object_a_line_whatever_the_model_wrote(tmp_path: Path) -> None:
    path = Dumps(tmp_path).trajectory(0, [{"response": "a\nb\u2028c"}, {"response": "half \ud83d pair"}])
    lines = path.read_text().split("\n")
    assert [json.loads(line)["response"] for line in lines[:-1]] == ["a\nb\u2028c", "half ? pair"]
    assert lines[-1] == ""


def test_a_slice_takes_only_its_own_bytes_to_the_disk(tmp_path: Path) -> None:
    whole = torch.zeros(1_000_000)
    path = Dumps(tmp_path).train(0, 0, {"log_probs": [whole[10:20].requires_grad_()]})
    assert path.stat().st_size < 10_000
    assert not read(path)["rollout_data"]["log_probs"][0].requires_grad


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"status": Status.COMPLETED}, r"samples'\]\[0\]\['status'\].*Status"),
        ({"metadata": {"path": Path("x")}}, r"\['metadata'\]\['path'\].*Path"),
        ({"reward": torch.float32}, "reward"),
    ],
)
def test_what_could_not_be_opened_again_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        Dumps(tmp_path).rollout(0, [sample(**changes)], {})
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_mask_of_another_length_than_the_response_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"samples\[1\]: loss_mask has 2 entries, response_length is 126"):
        Dumps(tmp_path).rollout(0, [sample(), sample(loss_mask=[1, 1])], {})


def test_columns_of_unequal_length_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="one entry per sample"):
        Dumps(tmp_path).train(0, 0, {"rewards": [1.0, 0.0], "truncated": [0]})


@pytest.mark.parametrize(
    "write",
    [
        lambda dumps: dumps.rollout(0, [sample()] * 40, {}),
        lambda dumps: dumps.train(0, 0, {"tokens": [torch.zeros(100_000)]}),
        lambda dumps: dumps.trajectory(0, [{"response": "x" * 300_000}]),
    ],
    ids=["rollout", "train", "trajectory"],
)
def test_a_full_disk_costs_the_dump_and_leaves_what_was_there(tmp_path: Path, write: Callable[[Dumps], Path]) -> None:
    dumps = Dumps(tmp_path)
    path = write(dumps)
    before = path.read_bytes()
    # The limit on file sizes makes the kernel refuse a write in the middle of a file, as a full disk does.
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(DumpNotWritten) as caught:
            write(dumps)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert caught.value.path == path
    assert str(path) in str(caught.value)
    assert "File too large" in caught.value.reason
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_a_folder_that_cannot_be_made_costs_the_dump_only(tmp_path: Path) -> None:
    (tmp_path / "traces").write_text("a file where the folder should be")
    with pytest.raises(DumpNotWritten, match="traces"):
        Dumps(tmp_path / "traces").trajectory(0, [])


def test_what_a_killed_process_left_half_written_goes_at_the_next_start(tmp_path: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    folder = tmp_path / "rollout_data"
    folder.mkdir()
    host = socket.gethostname()
    kept = [folder / f".3.pt.tmp-{host}-{os.getpid()}", folder / f".3.pt.tmp-{host}x-{dead.pid}", folder / "2.pt"]
    for file in (folder / f".3.pt.tmp-{host}-{dead.pid}", *kept):
        file.write_bytes(b"half")
    Dumps(tmp_path)
    assert sorted(folder.iterdir()) == sorted(kept)

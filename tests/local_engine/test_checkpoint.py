"""The last checkpoint is whole whatever happens while the next is written, and a damaged one is never loaded."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from local_engine.checkpoint import (
    CheckpointNotWritten,
    load_latest,
    remove_stale,
    save,
)
from local_engine.manifest import CheckpointError, find_latest
from local_engine.rng import capture_rng, restore_rng
from tests.local_engine.checkpoint_faults import state, write_model

ROOT = Path(__file__).parent.parent.parent


def faults(*arguments: str, before: tuple[str, ...] = ()) -> list[Any]:
    command = [*before, sys.executable, "-m", "tests.local_engine.checkpoint_faults", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def three(folder: Path) -> Path:
    for iteration in range(3):
        save(folder, iteration, state(iteration), write_model)
    return folder


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    saved = state(4)
    folder = save(tmp_path / "run", 4, saved, write_model)
    assert folder == tmp_path / "run" / "iter_0000004"
    assert (tmp_path / "run" / "latest_checkpointed_iteration.txt").read_text().strip() == "4"
    assert (folder / "adapter" / "adapter_model.safetensors").read_bytes() == b"x" * 5000
    loaded = load_latest(tmp_path / "run")
    assert torch.equal(loaded.weights["layer.lora_A"], saved.weights["layer.lora_A"])
    assert loaded.optimizer["state"][0]["step"] == 4.0
    assert (loaded.data_position, loaded.metrics, loaded.config_fingerprint, loaded.extra) == (
        saved.data_position,
        saved.metrics,
        "abc",
        {},
    )


def test_an_optimizer_goes_on_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    def train(steps: int, weight: torch.nn.Parameter, optimizer: torch.optim.Optimizer) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            (weight * torch.randn(8)).sum().backward()
            optimizer.step()

    def fresh() -> tuple[torch.nn.Parameter, torch.optim.Optimizer]:
        weight = torch.nn.Parameter(torch.ones(8))
        return weight, torch.optim.AdamW([weight], lr=0.1)

    torch.manual_seed(3)
    weight, optimizer = fresh()
    train(2, weight, optimizer)
    saved = state(1)
    saved.weights["weight"] = weight.detach()
    saved.optimizer.update(optimizer.state_dict())
    saved.rng.update(capture_rng())
    save(tmp_path, 1, saved, write_model)
    train(3, weight, optimizer)

    torch.manual_seed(99)
    loaded = load_latest(tmp_path)
    resumed, optimizer = fresh()
    resumed.data.copy_(loaded.weights["weight"])
    optimizer.load_state_dict(loaded.optimizer)
    restore_rng(loaded.rng)
    train(3, resumed, optimizer)
    assert torch.equal(resumed, weight)


def test_every_random_generator_comes_back(tmp_path: Path) -> None:
    def draw() -> tuple[float, float, float]:
        return random.random(), float(numpy.random.random()), float(torch.rand(()))

    # `extra` may hold the states too; what matters is that they survive the file.
    saved = state(0)
    saved.rng.update(capture_rng())
    expected = draw()
    save(tmp_path, 0, saved, write_model)
    draw()
    restore_rng(load_latest(tmp_path).rng)
    assert draw() == expected


def test_other_cuda_devices_are_named(tmp_path: Path) -> None:
    held = capture_rng()
    held["cuda"] = [*held["cuda"], torch.get_rng_state()]
    with pytest.raises(ValueError, match="CUDA_VISIBLE_DEVICES"):
        restore_rng(held)


@pytest.mark.parametrize("scenario", ["kill", "kill-back"])
def test_killed_at_any_moment_the_last_checkpoint_is_whole(tmp_path: Path, scenario: str) -> None:
    (report,) = faults(scenario, str(tmp_path / "run"))
    points, loaded = report["points"], report["loaded"]
    assert points > 15
    # Each child either left the checkpoint before it in place or finished its own; the last one was not killed.
    previous = 0
    for point, offset in enumerate(loaded, start=1):
        assert offset in ({0} if scenario == "kill-back" else {previous}) | {100 + point}
        previous = offset
    assert loaded[-1] == 101 + points
    assert report["left"] == []


def test_on_a_full_disk_the_last_checkpoint_stays_and_later_ones_are_tried_again(tmp_path: Path) -> None:
    own_namespace = ("unshare", "--user", "--map-root-user", "--mount")
    mounted = f'mount -t tmpfs -o size=2m tmpfs {tmp_path} && exec "$@"'
    probe = subprocess.run([*own_namespace, "sh", "-c", mounted, "sh", "true"], capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip(f"no private file system on this machine: {probe.stderr.decode().strip()}")
    failed, went_on = faults("disk", str(tmp_path / "run"), before=(*own_namespace, "sh", "-c", mounted, "sh"))
    assert "No space left on device" in failed["error"]
    assert failed["offset"] == 0
    assert went_on == {
        "offset": 2,
        "left": ["iter_0000000", "iter_0000002", "latest_checkpointed_iteration.txt"],
    }


def test_a_model_that_cannot_be_written_leaves_no_trace(tmp_path: Path) -> None:
    three(tmp_path)
    before = sorted(os.listdir(tmp_path))

    def refuse(folder: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(CheckpointNotWritten, match="iter_0000003 was not written: No space left on device"):
        save(tmp_path, 3, state(3), refuse)
    with pytest.raises(KeyError):
        save(tmp_path, 3, state(3), lambda folder: {}[folder])
    assert sorted(os.listdir(tmp_path)) == before
    assert load_latest(tmp_path).data_position.offset == 2


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda latest: flip(latest / "trainer.pt"), r"trainer\.pt: its content is not what was written"),
        (lambda latest: cut(latest / "trainer.pt"), r"trainer\.pt: it has \d+ bytes, \d+ were written"),
        (lambda latest: (latest / "trainer.pt").unlink(), r"trainer\.pt: No such file"),
        (lambda latest: flip(latest / "adapter" / "adapter_model.safetensors"), "adapter_model.safetensors: its"),
        (lambda latest: (latest / "manifest.json").unlink(), "manifest.json: it is missing"),
        (lambda latest: (latest / "manifest.json").write_text("[1]"), "manifest.json: it cannot be read"),
        (lambda latest: (latest / "manifest.json").write_text("{}"), "manifest.json: it does not list trainer.pt"),
        (shutil.rmtree, "iter_0000002: latest_checkpointed_iteration.txt names it and it does not exist"),
    ],
    ids=["flip", "cut", "missing", "model", "no manifest", "odd manifest", "empty manifest", "no folder"],
)
def test_a_damaged_checkpoint_is_refused_with_the_one_to_go_on_from(
    tmp_path: Path, damage: Callable[[Path], Any], said: str
) -> None:
    damage(three(tmp_path) / "iter_0000002")
    with pytest.raises(CheckpointError, match=said) as caught:
        load_latest(tmp_path)
    assert caught.value.older == tmp_path / "iter_0000001"
    assert f"write 1 into {tmp_path / 'latest_checkpointed_iteration.txt'} and resume" in str(caught.value)
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("1")
    assert load_latest(tmp_path).data_position.offset == 1


@pytest.mark.parametrize("text", ["release", "", "-1", "²"])
def test_a_tracker_that_is_no_number_is_refused(tmp_path: Path, text: str) -> None:
    (three(tmp_path) / "latest_checkpointed_iteration.txt").write_text(text)
    with pytest.raises(CheckpointError, match="does not hold the number of a rollout") as caught:
        find_latest(tmp_path)
    assert caught.value.older == tmp_path / "iter_0000002"


def test_nothing_saved_is_said_so(tmp_path: Path) -> None:
    assert find_latest(tmp_path) is None
    with pytest.raises(CheckpointError, match="nothing was saved here; there is no older complete checkpoint"):
        load_latest(tmp_path)


def test_a_file_that_is_code_is_not_run(tmp_path: Path) -> None:
    folder = three(tmp_path) / "iter_0000002"
    torch.save({"weights": Path("a class that only an unsafe load would import")}, folder / "trainer.pt")
    manifest = json.loads((folder / "manifest.json").read_text())
    content = (folder / "trainer.pt").read_bytes()
    manifest["trainer.pt"] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match=r"trainer\.pt: it cannot be read"):
        load_latest(tmp_path)


def test_saving_the_same_rollout_again_keeps_the_first(tmp_path: Path) -> None:
    three(tmp_path)
    save(tmp_path, 2, state(77), write_model)
    assert load_latest(tmp_path).data_position.offset == 2


def test_a_run_that_went_back_replaces_what_the_run_before_it_left(tmp_path: Path) -> None:
    (three(tmp_path) / "latest_checkpointed_iteration.txt").write_text("0")
    save(tmp_path, 2, state(55), write_model)
    assert load_latest(tmp_path).data_position.offset == 55
    assert not list(tmp_path.glob("*.old-*"))


def test_only_folders_of_our_own_dead_processes_are_removed(tmp_path: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    host = socket.gethostname()
    stale = tmp_path / f"iter_0000003.tmp-{host}-{dead.pid}"
    kept = [
        tmp_path / f"iter_0000003.tmp-{host}-{os.getpid()}",
        tmp_path / f"iter_0000003.tmp-{host}x-{dead.pid}",
        tmp_path / f"notes.tmp-{host}-{dead.pid}",
        tmp_path / "iter_0000002",
    ]
    for folder in (stale, *kept):
        folder.mkdir()
    assert remove_stale(tmp_path) == [stale]
    assert all(folder.exists() for folder in kept)


def test_the_message_fits_one_line(tmp_path: Path) -> None:
    error = CheckpointError(tmp_path / "iter_0000002", "it is missing")
    assert re.fullmatch(r"[^\n]+", str(error))

"""Files that are torn, foreign or made to harm their reader: named and skipped, nothing executed, the rest is read."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from progress.read_run import read_run, read_samples
from progress.run_report import Kind
from tests.progress.run_on_disk import RunOnDisk, sample, samples

SIGNAL = ((0.0, 1.0), (1.0, 1.0))


class Runs:
    """Pickles as a call of a function, which plain unpickling would make."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def saved(content: object) -> bytes:
    out = io.BytesIO()
    torch.save(content, out)
    return out.getvalue()


def archive(pickled: bytes, *, compression: int = zipfile.ZIP_STORED, data: bytes = b"") -> bytes:
    """A file of torch.save around any pickle."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as file:
        file.writestr("5/data.pkl", pickled)
        file.writestr("5/byteorder", b"little")
        file.writestr("5/version", b"3\n")
        if data:
            file.writestr("5/data/0", data)
    return out.getvalue()


def claiming_tensor(elements: int) -> bytes:
    """A tensor of as many elements as it claims its storage to have, of which the file holds four."""
    real = saved({"rollout_id": 5, "samples": [sample(0, torch.arange(4, dtype=torch.float64))]})
    with zipfile.ZipFile(io.BytesIO(real)) as file:
        pickled = file.read(next(name for name in file.namelist() if name.endswith("data.pkl")))
    head, _, tail = pickled.partition(b"X\x03\x00\x00\x00cpu")
    number = b"\x8a\x08" + struct.pack("<q", elements)
    # Twice a 4 behind the device's name: the length of the storage, then that of the tensor.
    return archive(head + b"X\x03\x00\x00\x00cpu" + tail.replace(b"K\x04", number, 2), data=b"\0" * 32)


def nested(depth: int) -> bytes:
    """A dict whose key is a tuple in a tuple in a tuple ...: hashing it recurses in C."""
    return archive(b"\x80\x02}" + b")" + b"\x85" * depth + b"K\x01s.")


def assert_named_and_skipped(disk: RunOnDisk, rollout_id: int = 5) -> str:
    """The bad file is found, and the two healthy rollouts beside it are read."""
    report = read_run(disk.traces)
    assert [step.rollout_id for step in report.steps] == [4, 6]
    (found,) = [finding for finding in report.findings if finding.kind is Kind.UNREADABLE]
    assert found.rollout_id == rollout_id
    return found.text


@pytest.fixture
def healthy(disk: RunOnDisk) -> RunOnDisk:
    disk.rollout(4, age=20)
    disk.rollout(6, age=10)
    return disk


@pytest.mark.parametrize("kind", ["torch", "plain", "in a sample"])
def test_a_pickle_that_would_run_code_is_not_executed(healthy: RunOnDisk, tmp_path: Path, kind: str) -> None:
    planted = tmp_path / "planted"
    evil = Runs(os.system, f"touch {planted}")
    content = {
        "torch": saved({"rollout_id": 5, "samples": evil}),
        "in a sample": saved({"rollout_id": 5, "samples": [sample(0, evil)]}),
        "plain": pickle.dumps(evil),
    }[kind]
    healthy.raw("rollout_data/5.pt", content)
    said = assert_named_and_skipped(healthy)
    assert not planted.exists()
    assert ("posix.system" in said) == (kind != "plain")
    assert read_samples(healthy.traces, 5) == []
    assert not planted.exists()


@pytest.mark.parametrize(
    "evil",
    [
        Runs(eval, "1"),
        Runs(open, "/etc/passwd"),
        Runs(numpy.load, "/etc/passwd"),
        Runs(torch.load, "/etc/passwd"),
        Runs(getattr, "a", "b"),
    ],
)
def test_nothing_outside_the_list_is_called(healthy: RunOnDisk, evil: Runs) -> None:
    healthy.raw("rollout_data/5.pt", saved({"rollout_id": 5, "samples": [evil]}))
    assert "nothing of it was executed" in assert_named_and_skipped(healthy)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.9, 0.999])
def test_a_truncated_dump_is_named(healthy: RunOnDisk, share: float) -> None:
    whole = saved({"rollout_id": 5, "samples": samples(SIGNAL)})
    healthy.raw("rollout_data/5.pt", whole[: int(len(whole) * share)], age=3600)
    said = assert_named_and_skipped(healthy)
    assert "it is empty" in said or "cut off" in said
    assert "may not be complete" not in said


@pytest.mark.parametrize("step", [64, 257, 1031])
def test_flipped_bytes_cost_their_file_only(healthy: RunOnDisk, step: int) -> None:
    whole = bytearray(saved({"rollout_id": 5, "samples": samples(SIGNAL)}))
    for place in range(4, len(whole), step):
        whole[place] ^= 0xFF
    healthy.raw("rollout_data/5.pt", bytes(whole))
    report = read_run(healthy.traces)
    # What is flipped may be padding, and the dump as good as before.
    assert {4, 6} <= {step.rollout_id for step in report.steps}
    assert {step.trajectories for step in report.steps} == {4}


@pytest.mark.parametrize(
    "content",
    [
        b"hello",
        b"PK\x03\x04",
        saved([1, 2, 3]),
        saved("text"),
        saved({"rollout_id": 5}),
        saved({"rollout_id": 5, "samples": "many"}),
        saved({"rollout_id": 5, "samples": [1, 2]}),
        saved({"rollout_id": torch.arange(3), "samples": []}),
        saved({"rollout_id": "5", "samples": []}),
        saved({"model": torch.nn.Linear(2, 2).state_dict()}),
        archive(b"\x80\x02."),
        archive(b""),
        archive(b"\x80\x02N."),
    ],
)
def test_foreign_content_is_named(healthy: RunOnDisk, content: bytes) -> None:
    healthy.raw("rollout_data/5.pt", content)
    assert_named_and_skipped(healthy)


def test_a_zip_bomb_is_not_unpacked(healthy: RunOnDisk) -> None:
    bomb = archive(pickle.dumps({"rollout_id": 5, "samples": []}, 2), compression=zipfile.ZIP_DEFLATED,
                   data=b"\0" * (64 << 20))  # fmt: skip
    assert len(bomb) < 100_000
    healthy.raw("rollout_data/5.pt", bomb)
    assert "which torch.save never does" in assert_named_and_skipped(healthy)


def test_a_tensor_that_claims_more_than_the_file_has_is_not_believed(healthy: RunOnDisk) -> None:
    healthy.raw("rollout_data/5.pt", claiming_tensor(1 << 40))
    assert "storage" in assert_named_and_skipped(healthy)


def test_a_huge_allocation_ends_with_its_file(healthy: RunOnDisk) -> None:
    # bytearray(n) is on the list of what a dump may hold.
    huge = b"\x80\x02cbuiltins\nbytearray\n\x8a\x07" + struct.pack("<q", 1 << 45)[:7] + b"\x85R."
    healthy.raw("rollout_data/5.pt", archive(huge))
    assert "MemoryError" in assert_named_and_skipped(healthy)


def test_a_crash_of_the_unpickler_ends_its_process_only(healthy: RunOnDisk) -> None:
    healthy.raw("rollout_data/5.pt", nested(300_000))
    said = assert_named_and_skipped(healthy)
    assert "ended its process (-11)" in said or "RecursionError" in said


def test_lists_that_hold_themselves_are_walked_once(healthy: RunOnDisk) -> None:
    ring: list[Any] = []
    ring.append(ring)
    healthy.raw("rollout_data/5.pt", saved({"rollout_id": 5, "samples": ring}))
    assert "RecursionError" in assert_named_and_skipped(healthy)


def test_odd_values_within_samples_cost_no_more_than_their_file(healthy: RunOnDisk) -> None:
    wide = torch.zeros(1).expand(1 << 40)
    odd: list[dict[str, Any]] = [
        {"reward": wide},
        {"loss_mask": torch.zeros(2, 2)},
        {"loss_mask": {"a": 1}},
        {"group_index": [1], "index": {"a": 2}},
        {"response_length": -(10**30), "index": 10**30, "metadata": [1]},
        {"metadata": {"exit_status": ["x"], "agent_metrics": {"turns": wide}}},
        {"status": 3, "response_length": "4", "response": 7, "prompt": [[["deep"]]]},
        {"metadata": {"exit_status": "\ud800 \x1b[31m" + "x" * 10_000}},
    ]
    healthy.rollout(7, samples=[sample(place, 1.0) | changes for place, changes in enumerate(odd)])
    report = read_run(healthy.traces)
    assert [step.rollout_id for step in report.steps][:2] == [4, 6]
    assert json.loads(json.dumps(report.as_dict()))["last_rollout"] in (6, 7)
    read_samples(healthy.traces, 7)


def test_entries_that_are_no_files_are_named_and_not_opened(healthy: RunOnDisk) -> None:
    """A named pipe without a writer would be waited for without end."""
    folder = healthy.traces / "rollout_data"
    (folder / "5.pt").mkdir()
    os.mkfifo(folder / "7.pt")
    os.mkfifo(folder / "pipe")
    (folder / "8.pt").symlink_to("/dev/zero")
    (folder / "9.pt").symlink_to(folder / "7.pt")
    (folder / "10.pt").symlink_to(folder / "nowhere")
    (folder / "11.pt").symlink_to(folder / "11.pt")
    os.mkfifo(healthy.traces / "launch.json")
    (healthy.traces / "outcomes").mkdir()
    os.mkfifo(healthy.traces / "outcomes" / "host-1.jsonl")
    os.mkfifo(healthy.traces / ".verify_progress.json")
    report = read_run(healthy.traces)
    assert [step.rollout_id for step in report.steps] == [4, 6]
    named = {finding.rollout_id: finding.text for finding in report.findings if finding.kind is Kind.UNREADABLE}
    assert {5, 7, 8, 9, 10, 11, None} == named.keys()
    assert "a folder" in named[5] and "a named pipe" in named[7] and "a device" in named[8]


def test_a_link_to_a_dump_is_a_dump(healthy: RunOnDisk, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.pt"
    elsewhere.write_bytes(saved({"rollout_id": 5, "samples": samples(SIGNAL)}))
    (healthy.traces / "rollout_data" / "5.pt").symlink_to(elsewhere)
    assert [step.rollout_id for step in read_run(healthy.traces).steps] == [4, 5, 6]


def test_foreign_names_are_named_and_files_in_the_making_are_not(healthy: RunOnDisk) -> None:
    for name in ("notes.txt", "5.pt.bak", "-1.pt", "1_2_3.pt", "99999999999999999999.pt", "٣.pt", "5\n.pt"):
        healthy.raw(f"rollout_data/{name}", b"x")
    healthy.raw("rollout_data/.5.pt.tmp-host-1", b"x")
    os.close(os.open(os.fsencode(healthy.traces / "rollout_data") + b"/\xff.pt", os.O_CREAT))
    texts = [finding.text for finding in read_run(healthy.traces).findings]
    assert len([text for text in texts if "its name is not that of a dump" in text]) == 8


def test_torn_and_foreign_lines_of_outcomes_cost_themselves(healthy: RunOnDisk) -> None:
    good = json.dumps({"rollout_id": 6, "index": 0, "exit_status": "NeverRan", "discard": True}).encode()
    lines = [
        good,
        b'{"rollout_id": 6, "exit_st',
        b"\xff\xfe not UTF-8",
        b"[1, 2]",
        b"null",
        b"[" * 100_000,
        b'{"rollout_id": 1e999, "time": NaN}',
        b'{"rollout_id": 99999999999999999999, "exit_status": {"a": 1}, "discard": "yes", "time": "now"}',
        b'{"rollout_id": -3, "exit_status": "\\ud800", "discard": true, "time": -1e300, "seconds": 1e300}',
        b'{"rollout_id": true, "index": 1e3, "group_index": [], "discard": 1}',
        b"",
        b"\r",
        good.replace(b": 0", b": 1"),
    ]
    path = healthy.traces / "outcomes" / "host-1.jsonl"
    path.parent.mkdir()
    path.write_bytes(b"\n".join(lines))
    report = read_run(healthy.traces)
    assert report.steps[-1].discarded == 2
    path.write_bytes(b"\n".join(lines) + b"\n" + good.replace(b": 0", b": 2") + b'\n{"torn')
    assert read_run(healthy.traces).steps[-1].discarded == 3


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"arguments": 3, "placement": [], "files": "x"}',
                                     b'{"arguments": ["--num-rollout", "9999999999999"], '
                                     b'"placement": {"train_ranks": 1e9}}'])  # fmt: skip
def test_a_broken_launch_file_costs_itself(healthy: RunOnDisk, content: bytes) -> None:
    (healthy.traces / "launch.json").write_bytes(content)
    report = read_run(healthy.traces)
    assert len(report.steps) == 2
    assert report.num_rollout is None
    named = [finding for finding in report.findings if "launch.json" in finding.text]
    assert len(named) == (0 if content.startswith(b'{"') else 1)


def test_arrays_of_numpy_are_data(disk: RunOnDisk) -> None:
    """Routed experts, which a run with routing replay dumps, are such arrays."""
    experts = numpy.arange(24, dtype=numpy.int32).reshape(4, 3, 2)
    disk.rollout(0, samples=[sample(0, 0.0), sample(1, 1.0, rollout_routed_experts=experts)])
    report = read_run(disk.traces)
    assert report.findings == () and report.steps[0].trajectories == 2

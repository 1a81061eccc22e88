"""What was read once is not read again; a cache that is damaged, foreign or hostile is a cache that is not there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from progress import cache, scan
from progress.dump_reader import DumpReader
from progress.read_run import ReadSettings, read_run
from progress.run_report import Kind
from progress.unreadable import Unreadable
from tests.progress.run_on_disk import RunOnDisk

NAMES = ("rollout_data/0.pt", "rollout_data/1.pt", "rollout_data/eval_0.pt", "train_data/0_0.pt", "train_data/1_0.pt")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Names of the dumps that are opened, as they are."""
    opened: list[str] = []
    found = DumpReader._found  # pyright: ignore[reportPrivateUsage]

    def recording(self: DumpReader, what: Any, path: Path, *rest: Any) -> object:
        opened.append(f"{path.parent.name}/{path.name}")
        return found(self, what, path, *rest)

    monkeypatch.setattr(DumpReader, "_found", recording)
    yield opened


@pytest.fixture
def run(disk: RunOnDisk) -> RunOnDisk:
    disk.steps(2, age=60)
    disk.evaluation(0)
    disk.outcomes(disk.ended(1, {"NeverRan": 2}, discard=True))
    return disk


def cached(run: RunOnDisk) -> Path:
    return run.traces / cache.NAME


def test_a_second_look_opens_no_dump_and_says_the_same(run: RunOnDisk, read: list[str]) -> None:
    first = read_run(run.traces)
    assert sorted(read) == sorted(NAMES)
    read.clear()
    second = read_run(run.traces)
    assert read == []
    assert second.steps == first.steps and second.evaluations == first.evaluations
    assert (second.exit_statuses, second.findings) == (first.exit_statuses, first.findings)


def test_only_what_is_new_or_changed_is_opened(run: RunOnDisk, read: list[str]) -> None:
    read_run(run.traces)
    read.clear()
    run.rollout(2)
    run.set_age(run.traces / "rollout_data" / "0.pt", 3600)
    (run.traces / "train_data" / "1_0.pt").unlink()
    report = read_run(run.traces)
    assert sorted(read) == ["rollout_data/0.pt", "rollout_data/2.pt"]
    assert [step.rollout_id for step in report.steps] == [0, 1, 2]
    assert not report.steps[1].ranks
    assert "train_data/1_0.pt" not in json.loads(cached(run).read_bytes())["dumps"]


def test_outcomes_are_read_from_where_they_were_left(run: RunOnDisk) -> None:
    path = run.traces / "outcomes" / "host-1.jsonl"
    run.outcomes(run.ended(1, {"ServerTimeout": 8}, discard=True, first=20))
    assert read_run(run.traces).steps[1].discarded == 10
    # As long as before, and not at the end: seen only by a reader who begins again.
    path.write_bytes(path.read_bytes().replace(b"NeverRan", b"Aborted_", 1))
    run.outcomes(run.ended(1, {"InfraError": 1}, discard=True, first=40))
    statuses = read_run(run.traces).steps[1].exit_statuses
    assert statuses == {"Submitted": 4, "NeverRan": 2, "ServerTimeout": 8, "InfraError": 1}


def test_an_outcomes_file_that_was_replaced_is_read_from_its_beginning(run: RunOnDisk) -> None:
    read_run(run.traces)
    path = run.traces / "outcomes" / "host-1.jsonl"
    path.unlink()
    run.outcomes(run.ended(1, {"InfraError": 5}, discard=True))
    assert read_run(run.traces).steps[1].exit_statuses == {"Submitted": 4, "InfraError": 5}


def test_a_dump_that_cannot_be_read_is_not_opened_again_either(run: RunOnDisk, read: list[str]) -> None:
    run.raw("rollout_data/2.pt", b"PK\x03\x04 torn")
    first = read_run(run.traces)
    read.clear()
    assert read_run(run.traces).findings == first.findings
    assert read == []


def test_what_may_pass_is_tried_again(run: RunOnDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network disk that does not answer says nothing about the file."""
    samples = DumpReader.samples

    def refused(self: DumpReader, path: Path, rollout_id: int) -> object:
        raise Unreadable("Input/output error", lasting=False)

    monkeypatch.setattr(DumpReader, "samples", refused)
    assert {finding.rollout_id for finding in read_run(run.traces).findings} == {0, 1}
    monkeypatch.setattr(DumpReader, "samples", samples)
    report = read_run(run.traces)
    assert report.findings == () and report.steps[1].trajectories == 4


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not JSON",
        b"[]",
        b"null",
        b'{"version": 1}',
        b'{"version": 99, "dumps": {}, "outcomes": {}}',
        b'{"version": 1, "reward_key": null, "dumps": [], "outcomes": 3}',
        b'{"version": 1, "reward_key": null, "dumps": {"rollout_data/0.pt": 3}, "outcomes": {"x": null}}',
        b"[" * 100_000,
        b"\x80\x04cposix\nsystem\n(X\x05\x00\x00\x00falsetR.",
    ],
)
def test_a_damaged_cache_is_made_anew(run: RunOnDisk, read: list[str], content: bytes) -> None:
    whole = read_run(run.traces)
    cached(run).write_bytes(content)
    read.clear()
    assert read_run(run.traces).steps == whole.steps
    assert sorted(read) == sorted(NAMES)
    assert json.loads(cached(run).read_bytes())["version"] == cache.VERSION


HOSTILE = (-1, -(2**63), 2**63 - 1, 1e308, "x" * 1000, [], {}, None, True, [[1]], {"a": -1})


@pytest.mark.parametrize("value", HOSTILE)
def test_a_hostile_cache_is_believed_as_far_as_its_types_go_and_harms_nobody(run: RunOnDisk, value: object) -> None:
    read_run(run.traces)
    content = json.loads(cached(run).read_bytes())
    for entry in content["dumps"].values():
        for part in (entry["samples"], entry["train"]):
            for name in list(part or {}):
                part[name] = value
    for tally in content["outcomes"].values():
        tally["offset"] = value if isinstance(value, int) else tally["offset"]
        tally["steps"] = {"x": {}, "-1": value, "9" * 40: tally["steps"]["1"], **tally["steps"]}
    cached(run).write_text(json.dumps(content))
    report = read_run(run.traces)
    assert json.loads(json.dumps(report.as_dict())) == report.as_dict()
    assert {finding.kind for finding in report.findings} <= set(Kind)


def test_every_field_alone_can_be_hostile(run: RunOnDisk) -> None:
    read_run(run.traces)
    whole = json.loads(cached(run).read_bytes())
    for name in list(whole["dumps"]["rollout_data/0.pt"]["samples"]):
        for value in (-1, 10**18, "text"):
            content = json.loads(json.dumps(whole))
            content["dumps"]["rollout_data/0.pt"]["samples"][name] = value
            cached(run).write_text(json.dumps(content))
            report = read_run(run.traces).as_dict()
            assert json.loads(json.dumps(report)) == report


def test_where_the_dumps_cannot_be_written_the_users_cache_is_used(
    run: RunOnDisk, read: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # Root may write anywhere; a read-only mount answers so.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    read_run(run.traces)
    assert not cached(run).exists()
    assert len(list((tmp_path / "cache" / "verify_progress").iterdir())) == 1
    read.clear()
    read_run(run.traces)
    assert read == []


def test_the_cache_folder_can_be_named(run: RunOnDisk, read: list[str], tmp_path: Path) -> None:
    settings = ReadSettings(cache_dir=tmp_path / "here")
    read_run(run.traces, settings)
    read.clear()
    read_run(run.traces, settings)
    assert read == [] and not cached(run).exists()


def test_a_cache_that_cannot_be_written_costs_the_cache_only(run: RunOnDisk, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    report = read_run(run.traces, ReadSettings(cache_dir=tmp_path / "file" / "below"))
    assert len(report.steps) == 2


def test_a_look_that_was_interrupted_has_kept_what_it_read(
    run: RunOnDisk, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "SAVE_EVERY", 0.0)
    look = read_run

    def interrupt(done: int, of: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        look(run.traces, report=interrupt)
    first = list(read)
    read.clear()
    assert len(look(run.traces).steps) == 2
    assert len(first) == 3 and sorted(first + read) == sorted(NAMES)


def test_another_reward_key_reads_anew(run: RunOnDisk, read: list[str]) -> None:
    read_run(run.traces)
    run.launch(arguments=["--reward-key", "score"])
    read.clear()
    read_run(run.traces)
    assert sorted(read) == sorted(NAMES)

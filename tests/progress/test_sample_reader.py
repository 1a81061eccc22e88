"""Trajectories of dumps with their conversations and trial folders, Miles' and hostile ones."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from progress.read_samples import SampleReader
from tests.progress.written_run import write_run


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SampleReader]:
    """One process for all tests of this file; each writes rollouts of its own into the run."""
    save = tmp_path_factory.mktemp("runs") / "run"
    write_run(save, [0, 1, 2, 3], groups=1, size=1, said="hello")
    with SampleReader(save) as started:
        yield started


@pytest.fixture
def save(reader: SampleReader) -> Path:
    found = reader.read(0)
    assert len(found) == 1
    traces = reader.traces
    assert traces is not None
    return traces.parent


def test_a_conversation_comes_from_its_file_and_the_verdict_from_the_trial(reader: SampleReader) -> None:
    (found,) = reader.read(0)
    assert [message.role for message in found.messages] == ["user", "assistant", "user"]
    assert found.commands == ("mv a 'hello'",)
    assert found.verifier_output == "the verifier says hello"


def test_conversations_of_miles_are_found_by_its_own_names(reader: SampleReader, save: Path) -> None:
    row = {
        "sample_index": 1000,
        "group_index": 1,
        "status": "completed",
        "reward": 1.0,
        "prompt": "p",
        # Half of a surrogate pair, as a byte-level tokenizer leaves it.
        "messages": [{"role": "user", "content": "from Miles \ud83d"}],
    }
    (save / "traces" / "trajectory" / "1.jsonl").write_text(json.dumps(row) + "\n")
    (found,) = reader.read(1)
    assert found.messages[0].content == "from Miles ?"


def test_links_of_a_trial_folder_lead_nowhere(reader: SampleReader, save: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("a key of this machine")
    trial = save / "agent_server" / "trials" / "trial-2-0"
    (trial / "verifier" / "test-stdout.txt").unlink()
    (trial / "verifier" / "test-stdout.txt").symlink_to(tmp_path / "secret")
    (trial / "messages.jsonl").symlink_to(tmp_path / "secret")
    (found,) = reader.read(2)
    assert found.verifier_output is None
    shutil.rmtree(trial / "verifier")
    (tmp_path / "test-stdout.txt").write_text("a key of this machine")
    (trial / "verifier").symlink_to(tmp_path)
    (found,) = reader.read(2)
    assert found.verifier_output is None


def test_a_rollout_without_trial_folder_or_dump_is_no_error(reader: SampleReader, save: Path) -> None:
    shutil.rmtree(save / "agent_server" / "trials" / "trial-3-0")
    (found,) = reader.read(3)
    assert found.verifier_output is None
    assert found.messages
    assert reader.read(99) == []

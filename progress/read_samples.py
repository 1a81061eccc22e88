"""The trajectories of rollouts, put together from their dumps, their conversations and the folders of its trials."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from harbor_service.trial_record import MESSAGES, VERIFIER, regular_text
from progress.dump_reader import DumpReader
from progress.dump_trajectories import messages_of, text
from progress.launch import Launch, read_launch
from progress.recorded_trajectory import Message, RecordedTrajectory
from progress.run_folder import TRAJECTORY, FileStamp, find_traces, look
from progress.unreadable import Unreadable

LONGEST_OUTPUT = 64 * 2**10  # bytes of a verifier's output that are shown, from its end
_LARGEST = 256 * 2**20  # bytes of one file of conversations
_COMMAND = re.compile(r"```(?:bash|sh|shell)?[ \t]*\n(.*?)```", re.DOTALL)
_TRIAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

_Key = tuple[int | None, int | None]


class SampleReader:
    """Reads rollouts of one run, with one process for all of them; use as a context manager.

    `trials_dir` holds the trial folders with the verifier's output; None: where the local engine puts them.
    """

    def __init__(self, folder: Path, trials_dir: Path | None = None) -> None:
        self.traces = find_traces(folder)
        launch, self._dumps, saved = Launch(), dict[int, FileStamp](), list[Path]()
        if self.traces is not None:
            launch, self._dumps = read_launch(self.traces), look(self.traces).rollouts
            saved = [self.traces.parent, *([launch.save_dir] if launch.save_dir is not None else [])]
        self._reader = DumpReader(launch.reward_key)
        self._trials = [save / "agent_server" / "trials" for save in saved] if trials_dir is None else [trials_dir]

    def __enter__(self) -> Self:
        self._reader.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._reader.__exit__(kind, error, traceback)

    def read(self, rollout_id: int) -> list[RecordedTrajectory]:
        """The trajectories in the order of the dump; empty where there is no readable one.

        Raises ReaderMissing where this machine cannot open dumps.
        """
        dump = self._dumps.get(rollout_id)
        if self.traces is None or dump is None:
            return []
        try:
            found = self._reader.trajectories(dump.path, rollout_id)
        except Unreadable:
            return []
        conversations = _conversations(self.traces / TRAJECTORY / f"{rollout_id}.jsonl")
        return [_completed(one, conversations.get((one.group_index, one.index), ()), self._trials) for one in found]


def read_samples(folder: Path, rollout_id: int, trials_dir: Path | None = None) -> list[RecordedTrajectory]:
    """One rollout, as `SampleReader` reads it. Raises ReaderMissing where this machine cannot open dumps."""
    with SampleReader(folder, trials_dir) as reader:
        return reader.read(rollout_id)


def _completed(one: RecordedTrajectory, conversation: tuple[Message, ...], trials: list[Path]) -> RecordedTrajectory:
    trial = next((place for folder in trials if (place := _trial(folder, one.trial)) is not None), None)
    said = regular_text(trial, MESSAGES, most=_LARGEST) if trial is not None else None
    messages = tuple(_messages_in(said or "")) or conversation or one.messages
    return replace(
        one,
        messages=messages,
        commands=tuple(_commands(messages, one.turns)),
        verifier_output=_verifier_output(trial) if trial is not None else None,
    )


def _commands(messages: tuple[Message, ...], turns: int | None) -> Iterator[str]:
    """Code blocks of the answers that were the policy's own: the last ones, after what the prompt shows as examples."""
    answers = [message.content for message in messages if message.role == "assistant"]
    for answer in answers if turns is None else answers[max(0, len(answers) - max(turns, 0)) :]:
        yield from (block.strip() for block in _COMMAND.findall(answer))


def _trial(folder: Path, name: str | None) -> Path | None:
    """The name is text of a dump: it may name a folder in here and nothing else."""
    if name is None or _TRIAL.fullmatch(name) is None:
        return None
    return folder / name if os.path.isdir(folder / name) else None


def _verifier_output(trial: Path) -> str | None:
    parts = [regular_text(trial, *place, most=LONGEST_OUTPUT, end=True) for place in VERIFIER]
    known = [part for part in parts if part is not None]
    return "\n".join(part for part in known if part) if known else None


def _conversations(path: Path) -> dict[_Key, tuple[Message, ...]]:
    found: dict[_Key, tuple[Message, ...]] = {}
    for line in _objects(regular_text(path.parent, path.name, most=_LARGEST) or ""):
        # The local engine's name, and Miles'.
        group, index = line.get("group_index"), line.get("index", line.get("sample_index"))
        if isinstance(index, int):
            found[group if isinstance(group, int) else None, index] = messages_of(line.get("messages"))
    return found


def _messages_in(said: str) -> Iterator[Message]:
    for line in _objects(said):
        yield Message(text(line.get("role")) or "unknown", text(line.get("content")))


def _objects(lines: str) -> Iterator[dict[str, Any]]:
    for raw in lines.split("\n"):
        try:
            # Halves of surrogate pairs, which byte-level tokenizers make, are nothing that orjson takes.
            value: object = json.loads(raw) if raw.strip() else None
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield cast(dict[str, Any], value)

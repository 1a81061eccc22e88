"""The trajectories of one rollout, put together from its dump, its conversations and the folders of its trials."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import orjson

from progress.dump_reader import DumpReader, Unreadable
from progress.dump_trajectories import messages_of, text
from progress.launch import Launch, read_launch
from progress.recorded_trajectory import Message, RecordedTrajectory
from progress.run_folder import TRAJECTORY, find_traces, look

LONGEST_OUTPUT = 64 * 2**10  # bytes of a verifier's output that are shown, from its end
_LARGEST = 256 * 2**20  # bytes of one file of conversations
_COMMAND = re.compile(r"```(?:bash|sh|shell)?[ \t]*\n(.*?)```", re.DOTALL)
_TRIAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

_Key = tuple[int | None, int | None]


def read_samples(folder: Path, rollout_id: int, trials_dir: Path | None = None) -> list[RecordedTrajectory]:
    """The trajectories of one rollout in the order of its dump; empty where there is no readable dump.

    `trials_dir` holds the trial folders with the verifier's output; None: where the local engine puts them. Raises
    ReaderMissing where this machine cannot open dumps.
    """
    traces = find_traces(folder)
    dump = look(traces).rollouts.get(rollout_id) if traces is not None else None
    if traces is None or dump is None:
        return []
    launch = read_launch(traces)
    try:
        with DumpReader(launch.reward_key) as reader:
            found = reader.trajectories(dump.path, rollout_id)
    except Unreadable:
        return []
    conversations = _conversations(traces / TRAJECTORY / f"{rollout_id}.jsonl")
    trials = [trials_dir] if trials_dir is not None else _trial_folders(traces, launch)
    return [_completed(one, conversations.get((one.group_index, one.index), ()), trials) for one in found]


def _completed(one: RecordedTrajectory, conversation: tuple[Message, ...], trials: list[Path]) -> RecordedTrajectory:
    trial = next((place for folder in trials if (place := _trial(folder, one.trial)) is not None), None)
    in_trial = tuple(_messages_in(trial / "messages.jsonl")) if trial is not None else ()
    messages = in_trial or conversation or one.messages
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


def _trial_folders(traces: Path, launch: Launch) -> list[Path]:
    saved = [traces.parent, *([launch.save_dir] if launch.save_dir is not None else [])]
    return [folder / "agent_server" / "trials" for folder in saved]


def _trial(folder: Path, name: str | None) -> Path | None:
    """The name is text of a dump: it may name a folder in here and nothing else."""
    if name is None or _TRIAL.fullmatch(name) is None:
        return None
    return folder / name if (folder / name).is_dir() else None


def _verifier_output(trial: Path) -> str | None:
    parts = [_tail(trial / "verifier" / name) for name in ("test-stdout.txt", "test-stderr.txt")]
    known = [part for part in parts if part is not None]
    return "\n".join(part for part in known if part) if known else None


def _tail(path: Path) -> str | None:
    data = _bytes(path, LONGEST_OUTPUT)
    return None if data is None else data.decode(errors="replace")


def _conversations(path: Path) -> dict[_Key, tuple[Message, ...]]:
    found: dict[_Key, tuple[Message, ...]] = {}
    for line in _objects(path):
        group, index = line.get("group_index"), line.get("index")
        if isinstance(index, int):
            found[group if isinstance(group, int) else None, index] = messages_of(line.get("messages"))
    return found


def _messages_in(path: Path) -> Iterator[Message]:
    for line in _objects(path):
        yield Message(text(line.get("role")) or "unknown", text(line.get("content")))


def _objects(path: Path) -> Iterator[dict[str, Any]]:
    for raw in (_bytes(path, _LARGEST) or b"").split(b"\n"):
        try:
            value: object = orjson.loads(raw) if raw.strip() else None
        except orjson.JSONDecodeError:
            continue
        if isinstance(value, dict):
            yield cast(dict[str, Any], value)


def _bytes(path: Path, most: int) -> bytes | None:
    """At most the last `most` bytes of a regular file; None where there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None
        file.seek(max(0, status.st_size - most))
        return file.read(most)

"""What a trial left in its folder for a person to read: its messages, the verifier's output, its error."""

import json
import logging
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

_logger = logging.getLogger(__name__)
MESSAGES: Final = "messages.jsonl"
_ATIF: Final = ("agent", "trajectory.json")  # where Harbor's agents leave their trajectory
VERIFIER: Final = (("verifier", "test-stdout.txt"), ("verifier", "test-stderr.txt"))
_RESULT: Final = "result.json"
_FILE_BYTES: Final = 4 << 20
_SHOWN_CHARACTERS: Final = 20_000  # of one text
_SHOWN_MESSAGES: Final = 500


class MessageLog:
    """Appends an agent's messages to its trial's folder, each as one JSON line, as they come."""

    def __init__(self, trial_dir: Path) -> None:
        self._path = trial_dir / MESSAGES
        self._usable = True

    def append(self, messages: Sequence[Mapping[str, str]]) -> None:
        """Write messages (`role`, `content`); a disk that is full costs the record, not the trial."""
        if not self._usable:
            return
        try:
            with self._path.open("a", encoding="ascii") as file:
                file.write("".join(f"{json.dumps(message)}\n" for message in messages))
        except OSError as error:
            self._usable = False
            _logger.warning("the messages of a trial are not kept: %s", error)


@dataclass(frozen=True)
class Message:
    """`role`: system, user, assistant, command, tool, or what the agent calls it."""

    role: str
    text: str


@dataclass(frozen=True)
class TrialRecord:
    """Everything empty where the trial left nothing. Model and commands wrote it: hostile text."""

    messages: tuple[Message, ...]
    verifier_output: str
    error: str


def read_record(trial_dir: Path) -> TrialRecord:
    """Read a trial's folder, also while it runs; never raises for what lies in it."""
    messages = _logged(regular_text(trial_dir, MESSAGES) or "") or _atif(regular_text(trial_dir, *_ATIF) or "")
    output = "\n".join(text for parts in VERIFIER if (text := regular_text(trial_dir, *parts)))
    error = _error(regular_text(trial_dir, _RESULT) or "")
    return TrialRecord(tuple(messages[-_SHOWN_MESSAGES:]), _cut(output), error)


def _logged(text: str) -> list[Message]:
    found: list[Message] = []
    for line in text.splitlines():
        value = _json(line)
        role, content = _get(value, "role"), _get(value, "content")
        if isinstance(role, str) and isinstance(content, str):
            found.append(Message(role, _cut(content)))
    return found


def _atif(text: str) -> list[Message]:
    """The steps of Harbor's agent trajectory format."""
    found: list[Message] = []
    for step in _dicts(_get(_json(text), "steps")):
        if said := _get(step, "message"):
            found.append(Message(str(step.get("source")), _cut(_as_text(said))))
        for call in _dicts(_get(step, "tool_calls")):
            name = str(call.get("function_name"))
            found.append(Message("command", _cut(f"{name} {_as_text(call.get('arguments'))}")))
        for result in _dicts(_get(_get(step, "observation"), "results")):
            found.append(Message("tool", _cut(_as_text(result.get("content")))))
    return found


def _error(text: str) -> str:
    info = _get(_json(text), "exception_info")
    kind = _get(info, "exception_type")
    return _cut(f"{kind}: {_get(info, 'exception_message')}") if kind else ""


def _get(value: object, key: str) -> object:
    return cast("dict[str, object]", value).get(key) if isinstance(value, dict) else None


def _dicts(value: object) -> list[dict[str, Any]]:
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _json(text: str) -> object:
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None


def _cut(text: str) -> str:
    left_out = len(text) - _SHOWN_CHARACTERS
    return text if left_out <= 0 else f"{text[:_SHOWN_CHARACTERS]}\n[{left_out} more characters]"


def regular_text(folder: Path, *parts: str, most: int = _FILE_BYTES, end: bool = False) -> str | None:
    """The first `most` bytes (the last with `end`) of a regular file below `folder`, None where there is none.

    Containers write into these folders, so a link in them can point at any file of this machine: none is followed.
    """
    descriptors: list[int] = []
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptors.append(os.open(folder, flags | os.O_DIRECTORY))
        for part in parts[:-1]:
            descriptors.append(os.open(part, flags | os.O_DIRECTORY, dir_fd=descriptors[-1]))
        descriptors.append(os.open(parts[-1], flags | os.O_NONBLOCK, dir_fd=descriptors[-1]))
        status = os.fstat(descriptors[-1])
        if not stat.S_ISREG(status.st_mode):
            return None
        start = max(0, status.st_size - most) if end else 0
        return os.pread(descriptors[-1], min(most, status.st_size), start).decode("utf-8", "replace")
    except OSError:
        return None
    finally:
        for descriptor in descriptors:
            os.close(descriptor)

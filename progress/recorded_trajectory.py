"""One trajectory of a dump as a person reads it: conversation, commands, verifier output, reward."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Message:
    """One message of the conversation. `role` as recorded (system, user, assistant, tool, command, ...)."""

    role: str
    content: str


@dataclass(frozen=True)
class RecordedTrajectory:
    """Everything is text from elsewhere: escape it before it goes into a page or a terminal."""

    rollout_id: int
    group_index: int | None
    index: int | None
    instance_id: str | None
    status: str  # completed, truncated, aborted, failed
    exit_status: str | None
    reward: float | None
    response_tokens: int
    trained_tokens: int  # tokens with loss mask 1
    turns: int | None
    messages: tuple[Message, ...]
    commands: tuple[str, ...]  # what the agent ran, in order, where the messages show it
    verifier_output: str | None  # None where no trial folder is found
    trial: str | None  # name of the trial folder

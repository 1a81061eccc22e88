"""The trajectories of a dump as a person reads them, without tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from progress.dump_summary import NotADump, exit_status, plain_number, reward_of, turns_of
from progress.recorded_trajectory import Message, RecordedTrajectory
from trajectory.metrics import flat_samples, sample_metadata
from trajectory.outcome import finite_number


def trajectories_of(content: object, rollout_id: int, reward_key: str | None = None) -> list[RecordedTrajectory]:
    """One entry per sample, in the order of the dump; its conversation is the prompt and the response as decoded.

    Raises NotADump.
    """
    samples: object = cast(dict[str, object], content).get("samples") if isinstance(content, dict) else None
    if not isinstance(samples, list):
        raise NotADump("it holds no list of samples")
    return [
        _trajectory(cast(dict[str, Any], sample), rollout_id, reward_key)
        for sample in flat_samples(cast(list[Any], samples))
        if isinstance(sample, dict)
    ]


def messages_of(value: object) -> tuple[Message, ...]:
    """Of a list of chat messages, or of a text, which is one of the user; what is neither is left out."""
    if isinstance(value, str):
        return (Message("user", text(value)),)
    if not isinstance(value, list):
        return ()
    found = [cast(dict[str, Any], part) for part in cast(list[object], value) if isinstance(part, dict)]
    return tuple(Message(text(part.get("role")) or "unknown", _content(part)) for part in found)


def text(value: object) -> str:
    """A text that UTF-8 can hold; nothing of what is no text."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else ""


def _content(message: Mapping[str, Any]) -> str:
    content: object = message.get("content")
    if isinstance(content, list):
        parts = [cast(dict[str, Any], part) for part in cast(list[object], content) if isinstance(part, dict)]
        content = "".join(text(part.get("text")) for part in parts)
    calls: object = message.get("tool_calls")
    called = [_call(part) for part in cast(list[object], calls)] if isinstance(calls, list) else []
    return "\n".join(part for part in (text(content), *called) if part)


def _call(value: object) -> str:
    function: object = cast(dict[str, Any], value).get("function") if isinstance(value, dict) else None
    if not isinstance(function, dict):
        return ""
    named = cast(dict[str, Any], function)
    return f"{text(named.get('name'))}({text(named.get('arguments'))})"


def _trajectory(sample: Mapping[str, Any], rollout_id: int, reward_key: str | None) -> RecordedTrajectory:
    metadata = sample_metadata(sample)
    report: object = metadata.get("eval_report")
    trial = text(cast(dict[str, Any], report).get("trial")) if isinstance(report, dict) else ""
    response = text(sample.get("response"))
    mask: Any = sample.get("loss_mask")
    turns = turns_of(sample)
    length = _whole(sample.get("response_length")) or 0
    return RecordedTrajectory(
        rollout_id=rollout_id,
        group_index=_whole(sample.get("group_index")),
        index=_whole(sample.get("index")),
        instance_id=text(metadata.get("instance_id")) or None,
        status=text(sample.get("status")) or "unknown",
        exit_status=exit_status(sample) if metadata.get("exit_status") else None,
        reward=reward_of(sample, reward_key),
        response_tokens=length,
        trained_tokens=length if mask is None else sum(1 for entry in mask if entry),
        turns=None if turns is None else int(turns),
        messages=(*messages_of(sample.get("prompt")), *((Message("assistant", response),) if response else ())),
        commands=(),
        verifier_output=None,
        trial=trial or None,
    )


def _whole(value: object) -> int | None:
    number = plain_number(value)
    return number if isinstance(number, int) and finite_number(number) is not None and abs(number) < 2**62 else None

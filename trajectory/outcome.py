"""The outcome of one trajectory: a reward or the reason for not having one."""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from trajectory.exit_status import Worth, worth_of

logger = logging.getLogger(__name__)

DEEPEST = 64  # levels of a report; readers and writers of dumps recurse, and give up at a thousand


def finite_number(value: object) -> float | None:
    """`value` as a float when it is a finite int or float, else None. A bool is a verdict, not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


@dataclass(frozen=True)
class Outcome:
    """What one trial came to.

    Raises ValueError when `discard` and `reward` contradict each other or the reward is not finite.
    """

    reward: float | None
    """Finite reward; None exactly when discarded."""
    exit_status: str
    """Why the trial ended: a name of the exit status table or an agent's own."""
    discard: bool = False
    """True when the sample, and with it its group, must not be trained on."""
    eval_report: dict[str, Any] = field(default_factory=dict[str, Any])
    """The verifier's report."""
    agent_metrics: dict[str, Any] = field(default_factory=dict[str, Any])
    """Numbers of the agent: turns, commands, seconds."""

    def __post_init__(self) -> None:
        if self.discard != (self.reward is None):
            raise ValueError(f"discard {self.discard} does not go with reward {self.reward} ({self.exit_status})")
        if self.reward is not None and finite_number(self.reward) is None:
            raise ValueError(f"reward must be a finite number, got {self.reward!r} ({self.exit_status})")

    def as_dict(self) -> dict[str, Any]:
        """The dict that the agent function answers Miles with."""
        return {
            "reward": self.reward,
            "exit_status": self.exit_status,
            "discard": self.discard,
            "eval_report": self.eval_report,
            "agent_metrics": self.agent_metrics,
        }

    @classmethod
    def from_reply(cls, payload: object) -> "Outcome":
        """The outcome in an agent server's reply (decoded JSON of a 200 response).

        Never raises: a reply that breaks the contract is the outcome InvalidReply, with the reason under
        `eval_report["reason"]`.
        """
        if not isinstance(payload, dict):
            return discarded("InvalidReply", reason=f"reply is {type(payload).__name__}, not an object")
        reply = cast(dict[str, Any], payload)
        raw_reward, raw_status = reply.get("reward"), reply.get("exit_status")
        if raw_reward is None and raw_status is None:
            return discarded("InvalidReply", reason="reply has neither reward nor exit_status")
        if raw_status is not None and (not isinstance(raw_status, str) or not raw_status):
            return discarded("InvalidReply", reason=f"exit_status is {raw_status!r:.80}, not a name")
        reward = finite_number(raw_reward)
        if raw_reward is not None and reward is None:
            return discarded("InvalidReply", reason=f"reward is {raw_reward!r:.80}, not a finite number")
        status = raw_status or "Unreported"
        report, metrics = _object(reply, "eval_report"), _object(reply, "agent_metrics")
        if worth_of(status, has_reward=reward is not None) is Worth.DISCARDED:
            return cls(None, status, True, report, metrics)
        return cls(0.0 if reward is None else reward, status, False, report, metrics)


def discarded(
    status: str,
    *,
    reason: str = "",
    eval_report: Mapping[str, Any] | None = None,
    agent_metrics: Mapping[str, Any] | None = None,
) -> Outcome:
    """An outcome without reward; `reason`, one sentence, goes to `eval_report["reason"]`."""
    report = dict(eval_report or {})
    if reason:
        report["reason"] = reason
    return Outcome(None, status, True, report, dict(agent_metrics or {}))


def _object(reply: dict[str, Any], key: str) -> dict[str, Any]:
    # The reward is sound; losing a report must not lose the trajectory.
    value: object = reply.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        logger.warning("agent server's reply: %s is %s, not an object; left out", key, type(value).__name__)
        return {}
    found = cast(dict[str, Any], value)
    if _nested_deeper(found, DEEPEST):
        logger.warning("agent server's reply: %s is nested deeper than %d levels; left out", key, DEEPEST)
        return {}
    return found


def _nested_deeper(value: object, levels: int) -> bool:
    if isinstance(value, dict):
        parts = list(cast(dict[str, object], value).values())
    elif isinstance(value, list):
        parts = cast(list[object], value)
    else:
        return False
    return levels == 0 or any(_nested_deeper(part, levels - 1) for part in parts)

"""From what Harbor recorded about a trial to the outcome that `/run` answers."""

# pyright: reportMissingTypeStubs=false
# Harbor is typed but has no marker file that says so.

import math
from itertools import islice
from typing import Any

from harbor.models.trial.result import ExceptionInfo, TimingInfo, TrialResult

from harbor_service.model_client import CONTEXT_ERROR
from trajectory.exit_status import POLICY_FAULTS, RESOURCE_FAULTS, VERIFIER_FAULTS
from trajectory.judge import judge_trial
from trajectory.outcome import Outcome, finite_number

_MESSAGE_LENGTH = 500
_SHOWN_REWARDS = 50
_NAME_LENGTH = 100
# Harbor raises it bare when something of the agent's lies where the reward must come: the policy's doing.
_REWARD_FILE_BLOCKED = "Failed to remove verifier reward files"
# What reading the reward raises when the agent's work, run by the tests, made it a folder, nested it a thousand deep,
# or wrote a number where names and numbers must be.
_UNREADABLE_REWARD = ("IsADirectoryError", "RecursionError", "ValidationError")
_UNREADABLE = "VerifierOutputParseError"  # what Harbor raises for the other unreadable ones
_BAD_REQUEST = "BadRequestError"  # of the openai and litellm clients, also for a conversation that does not fit


def verdict(result: TrialResult, *, uses_model: bool, counts_calls: bool = True) -> Outcome:
    """Judge a trial that ran to its end, with or without an exception.

    `uses_model` is false for agents that act without a model (oracle, nop): they have no model calls to count.
    `counts_calls` is false for agents that may not count them: only a number that they give can then be 0.
    """
    metadata = agent_metadata(result)
    calls = _count(metadata.get("model_calls")) if counts_calls or "model_calls" in metadata else None
    error = _decisive_error(result)
    return judge_trial(
        reward=single_reward(result),
        exception_type=None if error is None else _name_of(error, result),
        exception_message="" if error is None else error.exception_message[:_MESSAGE_LENGTH],
        agent_status=_text(metadata.get("exit_status")) or (None if uses_model else "Submitted"),
        model_calls=calls if uses_model else None,
        model_endpoint_failed=_count(metadata.get("endpoint_failures")) > 0,
        started=result.agent_execution is not None or bool(result.step_results),
        eval_report=eval_report(result),
        agent_metrics=agent_metrics(result),
    )


def _decisive_error(result: TrialResult) -> ExceptionInfo | None:
    """The exception that decides what the trial is worth, None where there is none.

    A task with steps records what happened in each of them and goes on: what the policy cannot have caused decides
    over a verifier that gave nothing, and that over a fault of the policy's, beside which a reward counts.
    """
    errors = [error for error, _ in _phases(result) if error is not None]
    return max(errors, key=lambda error: _weight(_name_of(error, result)), default=None)


def _phases(result: TrialResult) -> list[tuple[ExceptionInfo | None, TimingInfo | None]]:
    steps = result.step_results or []
    return [(part.exception_info, part.verifier) for part in (result, *steps)]


def _name_of(error: ExceptionInfo, result: TrialResult) -> str:
    """The name to judge by: Harbor's, unless the text or the moment says more than that."""
    if error.exception_type == _BAD_REQUEST and CONTEXT_ERROR.search(error.exception_message):
        return "ContextLengthExceededError"
    blocked = error.exception_type == "RuntimeError" and error.exception_message.startswith(_REWARD_FILE_BLOCKED)
    if blocked or (error.exception_type in _UNREADABLE_REWARD and _is_the_verifiers(error, result)):
        return _UNREADABLE
    return error.exception_type


def _is_the_verifiers(error: ExceptionInfo, result: TrialResult) -> bool:
    """Whether it came while a verifier ran: Harbor grades after an agent's error too."""
    verifier = next(verifier for found, verifier in _phases(result) if found is error)
    return verifier is not None and verifier.started_at is not None and verifier.started_at <= error.occurred_at


def _weight(error_type: str) -> int:
    if error_type in POLICY_FAULTS:
        return 0
    return 1 if error_type in VERIFIER_FAULTS or error_type in RESOURCE_FAULTS else 2


def _rewards(result: TrialResult) -> dict[str, float | int] | None:
    return result.verifier_result.rewards if result.verifier_result is not None else None


def single_reward(result: TrialResult) -> object:
    """The verifier's `reward`, or its only value; the whole where that is neither, None where there was no verifier."""
    rewards = _rewards(result)
    if rewards is None:
        return None
    if "reward" in rewards:
        return rewards["reward"]
    return next(iter(rewards.values())) if len(rewards) == 1 else rewards


def agent_metadata(result: TrialResult) -> dict[str, Any]:
    """What the agent recorded about itself; of a task with steps, numbers are summed and the last text counts."""
    contexts = [result.agent_result, *(step.agent_result for step in result.step_results or [])]
    merged: dict[str, Any] = {}
    for context in contexts:
        for key, value in ((context.metadata if context is not None else None) or {}).items():
            before = merged.get(key)
            merged[key] = before + value if _is_number(value) and _is_number(before) else value
    return merged


def eval_report(result: TrialResult) -> dict[str, Any]:
    """The verifier's rewards, the trial's folder name and its exception."""
    report: dict[str, Any] = {"trial": result.trial_name}
    if (rewards := _rewards(result)) is not None:
        # A program that the tests run can write a million of them, or one with a name of a million characters.
        report["rewards"] = {
            name[:_NAME_LENGTH]: finite_number(rewards[name]) for name in islice(rewards, _SHOWN_REWARDS)
        }
    if (error := _decisive_error(result)) is not None:
        report["error"] = {"type": error.exception_type, "message": error.exception_message[:_MESSAGE_LENGTH]}
    return report


def agent_metrics(result: TrialResult) -> dict[str, Any]:
    """Turns, tokens and seconds of each part of the trial: numbers only, and none that an agent cannot tell."""
    tokens_in, _, tokens_out, _ = result.compute_token_cost_totals()
    metrics = dict(agent_metadata(result))
    # A model that was asked has read and written tokens: 0 is how some agents say that they do not know.
    metrics |= {"input_tokens": tokens_in or None, "output_tokens": tokens_out or None}
    steps = result.step_results or []
    parts = {
        "build_seconds": [result.environment_setup],
        "agent_seconds": [result.agent_execution, *(step.agent_execution for step in steps)],
        "verifier_seconds": [result.verifier, *(step.verifier for step in steps)],
    }
    metrics |= {name: seconds for name, part in parts.items() if (seconds := _seconds(part)) is not None}
    return {
        name: round(value, 4) if isinstance(value, float) else value
        for name, value in metrics.items()
        if finite_number(value) is not None
    }


def _seconds(parts: list[TimingInfo | None]) -> float | None:
    """The sum, None where no part was timed or the machine's clock was set back meanwhile."""
    spans = [
        (part.finished_at - part.started_at).total_seconds()
        for part in parts
        if part is not None and part.started_at is not None and part.finished_at is not None
    ]
    return sum(spans) if spans and min(spans) >= 0 else None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _count(value: object) -> int:
    return math.ceil(finite_number(value) or 0.0)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None

"""From what Harbor recorded about a trial to the outcome that `/run` answers."""

# pyright: reportMissingTypeStubs=false
# Harbor is typed but has no marker file that says so.

from datetime import datetime
from typing import Any

from harbor.models.trial.result import TimingInfo, TrialResult

from trajectory.judge import judge_trial
from trajectory.outcome import Outcome, finite_number

_MESSAGE_LENGTH = 500
# Harbor raises it bare when something of the agent's lies where the reward must come: the policy's doing.
_REWARD_FILE_BLOCKED = "Failed to remove verifier reward files"
# What reading the reward raises when the agent's work, run by the tests, made it a folder or nested it a thousand deep.
_UNREADABLE_REWARD = ("IsADirectoryError", "RecursionError")


def verdict(result: TrialResult, *, uses_model: bool, counts_calls: bool = True) -> Outcome:
    """Judge a trial that ran to its end, with or without an exception.

    `uses_model` is false for agents that act without a model (oracle, nop): they have no model calls to count.
    `counts_calls` is false for agents that may not count them: only a number that they give can then be 0.
    """
    metadata = agent_metadata(result)
    calls = _count(metadata.get("model_calls")) if counts_calls or "model_calls" in metadata else None
    error = result.exception_info
    error_type, message = (error.exception_type, error.exception_message) if error is not None else (None, "")
    if error_type == "RuntimeError" and message.startswith(_REWARD_FILE_BLOCKED):
        error_type = "VerifierOutputParseError"
    if error_type in _UNREADABLE_REWARD and _verified(result):
        error_type = "VerifierOutputParseError"
    return judge_trial(
        reward=single_reward(result),
        exception_type=error_type,
        exception_message=message[:_MESSAGE_LENGTH],
        agent_status=_text(metadata.get("exit_status")) or (None if uses_model else "Submitted"),
        model_calls=calls if uses_model else None,
        model_endpoint_failed=_count(metadata.get("endpoint_failures")) > 0,
        started=result.agent_execution is not None or bool(result.step_results),
        eval_report=eval_report(result),
        agent_metrics=agent_metrics(result),
    )


def _verified(result: TrialResult) -> bool:
    return result.verifier is not None or any(step.verifier is not None for step in result.step_results or [])


def single_reward(result: TrialResult) -> object:
    """The verifier's `reward`, or its only value; None where there is none or several without that name."""
    rewards: object = result.verifier_result.rewards if result.verifier_result is not None else None
    if not isinstance(rewards, dict):
        return rewards
    if "reward" in rewards:
        return rewards["reward"]
    return next(iter(rewards.values())) if len(rewards) == 1 else None


def agent_metadata(result: TrialResult) -> dict[str, Any]:
    """What the agent recorded about itself; of a task with steps, numbers are summed and the last text counts."""
    contexts = [result.agent_result, *(step.agent_result for step in result.step_results or [])]
    merged: dict[str, Any] = {}
    for context in contexts:
        for key, value in ((context.metadata if context is not None else None) or {}).items():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            merged[key] = merged.get(key, 0) + value if number else value
    return merged


def eval_report(result: TrialResult) -> dict[str, Any]:
    """The verifier's rewards, the trial's folder name and its exception."""
    report: dict[str, Any] = {"trial": result.trial_name}
    if result.verifier_result is not None:
        report["rewards"] = result.verifier_result.rewards
    if (error := result.exception_info) is not None:
        report["error"] = {"type": error.exception_type, "message": error.exception_message[:_MESSAGE_LENGTH]}
    return report


def agent_metrics(result: TrialResult) -> dict[str, Any]:
    """Turns, tokens and seconds of each part of the trial: numbers only, and none that an agent cannot tell."""
    tokens_in, _, tokens_out, _ = result.compute_token_cost_totals()
    metrics = dict(agent_metadata(result))
    # A model that was asked has read and written tokens: 0 is how some agents say that they do not know.
    metrics |= {"input_tokens": tokens_in or None, "output_tokens": tokens_out or None}
    parts = {
        "build_seconds": result.environment_setup,
        "agent_seconds": result.agent_execution,
        "verifier_seconds": result.verifier,
    }
    metrics |= {name: seconds for name, part in parts.items() if (seconds := _seconds(part)) is not None}
    return {
        name: round(value, 4) if isinstance(value, float) else value
        for name, value in metrics.items()
        if finite_number(value) is not None
    }


def _seconds(part: TimingInfo | None) -> float | None:
    if part is None:
        return None
    started: datetime | None = part.started_at
    finished: datetime | None = part.finished_at
    return (finished - started).total_seconds() if started is not None and finished is not None else None


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None

"""The verdict on one Harbor trial, for the agent server."""

from collections.abc import Mapping
from typing import Any

from trajectory.exit_status import (
    CANCELLATIONS,
    MODEL_ENDPOINT_FAULTS,
    POLICY_FAULTS,
    RESOURCE_FAULTS,
    SANDBOX_FAULTS,
    TASK_FAULTS,
    VERIFIER_FAULTS,
    VERIFIER_TRANSFER_FAULTS,
    Worth,
    worth_of,
)
from trajectory.outcome import Outcome, discarded, finite_number


def judge_trial(
    *,
    reward: object,
    exception_type: str | None = None,
    exception_message: str = "",
    agent_status: str | None = None,
    model_calls: int | None = None,
    model_endpoint_failed: bool = False,
    started: bool = True,
    cancelled: bool = False,
    eval_report: Mapping[str, Any] | None = None,
    agent_metrics: Mapping[str, Any] | None = None,
) -> Outcome:
    """Apply the exit status table to what Harbor reports; pure, never raises.

    `reward` is the verifier's, None where it gave none. `exception_type` is the class name Harbor recorded.
    `agent_status` is the agent's own ending. `model_calls` counts answered or failed calls, None where the agent
    uses no model at all (oracle, nop) or nobody counts. `model_endpoint_failed` is true when any call met a failed
    endpoint, also one the agent survived. `started` is false when the trial ended before the agent's first step
    (creation, sandbox start, agent setup). `cancelled` is true for a flushed or hung-up trial.

    Harbor grades unknown errors too and calls such a reward valid, so a reward counts only without an exception
    or with one from the list of policy faults.
    """
    report, metrics = dict(eval_report or {}), dict(agent_metrics or {})

    def discard(status: str) -> Outcome:
        cause = f"{exception_type}: {exception_message}" if exception_type else ""
        if status == "InfraError" and not exception_type:
            # Without a sentence the outcomes file would not say why.
            cause = "the trial ended without an exception and without a reward (one named `reward`, or a single one)"
        return discarded(status, reason=cause[:500], eval_report=report, agent_metrics=metrics)

    def score(value: float, status: str) -> Outcome:
        return Outcome(value, status, False, report, metrics)

    if cancelled or exception_type in CANCELLATIONS:
        return discard("Aborted")
    if model_endpoint_failed or exception_type in MODEL_ENDPOINT_FAULTS:
        return discard("ModelEndpointFailed")
    if exception_type in SANDBOX_FAULTS:
        return discard("SandboxUnavailable")
    if not started:
        return discard(TASK_FAULTS.get(exception_type or "", "SandboxUnavailable"))
    if exception_type in VERIFIER_TRANSFER_FAULTS:
        return discard("VerifierUnavailable")
    if model_calls == 0:
        return discard("NeverRan")

    number = finite_number(reward)
    if exception_type is None:
        if number is None:
            # A verifier that wrote something unusable was reached by the agent's work; one that never ran was not.
            return discard("InfraError") if reward is None else score(0.0, "VerifierError")
        status = agent_status or "Unreported"
        return discard(status) if worth_of(status, has_reward=True) is Worth.DISCARDED else score(number, status)
    if exception_type in POLICY_FAULTS:
        return score(number or 0.0, POLICY_FAULTS[exception_type])
    if exception_type in RESOURCE_FAULTS:
        return score(0.0, RESOURCE_FAULTS[exception_type])
    if exception_type in VERIFIER_FAULTS:
        return score(0.0, VERIFIER_FAULTS[exception_type])
    return discard("InfraError")

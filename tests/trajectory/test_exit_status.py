"""The table itself, and what the agent server's judge makes of every row of DESIGN's failure table."""

import math
from typing import Any

import pytest

from trajectory import exit_status
from trajectory.exit_status import STATUSES, Worth, worth_of
from trajectory.judge import judge_trial

ACTED: dict[str, Any] = {"model_calls": 3}


def test_every_status_an_exception_maps_to_is_in_the_table() -> None:
    tables = [
        exit_status.POLICY_FAULTS,
        exit_status.VERIFIER_FAULTS,
        exit_status.SANDBOX_FAULTS,
        exit_status.TASK_FAULTS,
        exit_status.VERIFIER_TRANSFER_FAULTS,
        exit_status.MODEL_ENDPOINT_FAULTS,
        exit_status.CANCELLATIONS,
    ]
    names = [name for table in tables for name in table]
    assert len(names) == len(set(names)), "an exception stands in two tables"
    assert {status for table in tables for status in table.values()} <= STATUSES.keys()


def test_only_policy_and_verifier_faults_are_scored() -> None:
    for status in {**exit_status.POLICY_FAULTS, **exit_status.VERIFIER_FAULTS}.values():
        assert STATUSES[status].worth is Worth.SCORED
    for table in (exit_status.SANDBOX_FAULTS, exit_status.MODEL_ENDPOINT_FAULTS, exit_status.CANCELLATIONS):
        assert all(STATUSES[status].worth is Worth.DISCARDED for status in table.values())


def test_an_agents_own_status_counts_only_with_a_reward() -> None:
    assert worth_of("PatchApplied", has_reward=True) is Worth.SCORED
    assert worth_of("PatchApplied", has_reward=False) is Worth.DISCARDED


@pytest.mark.parametrize("status", ["Submitted", "CommandSucceeded", "TurnLimitExceeded", "PatchApplied"])
@pytest.mark.parametrize("reward", [0.0, 1, -0.5])
def test_a_finite_reward_without_exception_counts(status: str, reward: float) -> None:
    outcome = judge_trial(reward=reward, agent_status=status, **ACTED)
    assert (outcome.reward, outcome.exit_status, outcome.discard) == (reward, status, False)


@pytest.mark.parametrize(
    ("exception", "status"),
    [
        ("AgentTimeoutError", "TimeLimitExceeded"),
        ("ContextLengthExceededError", "SequenceLengthLimitExceeded"),
        ("OutputLengthExceededError", "OutputLengthExceeded"),
        ("NonZeroAgentExitCodeError", "AgentError"),
    ],
)
@pytest.mark.parametrize(("reward", "worth"), [(1.0, 1.0), (None, 0.0), (math.nan, 0.0)])
def test_a_policy_fault_keeps_the_verifiers_reward_else_zero(
    exception: str, status: str, reward: float | None, worth: float
) -> None:
    outcome = judge_trial(reward=reward, exception_type=exception, **ACTED)
    assert (outcome.reward, outcome.exit_status) == (worth, status)


@pytest.mark.parametrize("reward", [1.0, None])
def test_a_trial_ended_for_its_use_of_memory_or_disk_is_scored_zero(reward: float | None) -> None:
    outcome = judge_trial(reward=reward, exception_type="SandboxLimitExceeded", **ACTED)
    assert (outcome.reward, outcome.exit_status) == (0.0, "ResourceLimitExceeded")


@pytest.mark.parametrize(
    "exception",
    ["RewardFileNotFoundError", "RewardFileEmptyError", "VerifierOutputParseError", "VerifierTimeoutError"],
)
def test_a_verifier_that_gave_nothing_scores_zero_after_the_agent_acted(exception: str) -> None:
    outcome = judge_trial(reward=None, exception_type=exception, **ACTED)
    assert (outcome.reward, outcome.exit_status) == (0.0, "VerifierError")
    never = judge_trial(reward=None, exception_type=exception, model_calls=0)
    assert (never.reward, never.exit_status) == (None, "NeverRan")


@pytest.mark.parametrize(
    ("exception", "status"),
    [
        ("SandboxBuildFailedError", "SandboxUnavailable"),
        ("EnvironmentStartTimeoutError", "SandboxUnavailable"),
        ("HealthcheckError", "SandboxUnavailable"),
        ("AgentSetupTimeoutError", "SandboxUnavailable"),
        ("AddTestsDirError", "VerifierUnavailable"),
        ("DownloadVerifierDirError", "VerifierUnavailable"),
        ("InternalServerError", "ModelEndpointFailed"),
        ("ApiInternalServerError", "ModelEndpointFailed"),
        ("AuthenticationError", "ModelEndpointFailed"),
        ("APIConnectionError", "ModelEndpointFailed"),
        ("KeyError", "InfraError"),
        ("BadRequestError", "InfraError"),
        ("CancelledError", "Aborted"),
    ],
)
def test_infrastructure_faults_are_discarded_even_with_a_reward(exception: str, status: str) -> None:
    # Harbor grades unknown errors too and calls the reward valid.
    outcome = judge_trial(reward=1.0, exception_type=exception, exception_message="why", **ACTED)
    assert (outcome.reward, outcome.exit_status, outcome.discard) == (None, status, True)
    assert outcome.eval_report["reason"] == f"{exception}: why"


@pytest.mark.parametrize(
    ("exception", "status"),
    [
        ("FileNotFoundError", "TaskBroken"),
        ("ValidationError", "TaskBroken"),
        ("TaskBroken", "TaskBroken"),
        ("RuntimeError", "SandboxUnavailable"),
        ("NonZeroAgentExitCodeError", "SandboxUnavailable"),
        (None, "SandboxUnavailable"),
    ],
)
def test_what_ends_before_the_agent_started_is_the_tasks_or_the_sandboxs_fault(
    exception: str | None, status: str
) -> None:
    outcome = judge_trial(reward=None, exception_type=exception, started=False, model_calls=0)
    assert (outcome.discard, outcome.exit_status) == (True, status)


def test_a_failed_model_endpoint_discards_at_any_time() -> None:
    outcome = judge_trial(reward=1.0, agent_status="Submitted", model_endpoint_failed=True, **ACTED)
    assert outcome.exit_status == "ModelEndpointFailed"
    timeout = judge_trial(reward=1.0, exception_type="AgentTimeoutError", model_endpoint_failed=True, **ACTED)
    assert timeout.exit_status == "ModelEndpointFailed"


def test_no_model_call_is_never_ran_but_an_agent_without_model_is_scored() -> None:
    assert judge_trial(reward=1.0, agent_status="Submitted", model_calls=0).exit_status == "NeverRan"
    assert judge_trial(reward=1.0, model_calls=None).reward == 1.0


def test_a_cancelled_trial_is_aborted_whatever_else_it_says() -> None:
    outcome = judge_trial(reward=1.0, exception_type="AgentTimeoutError", cancelled=True, **ACTED)
    assert outcome.exit_status == "Aborted"


def test_no_reward_and_no_exception_is_infrastructure_but_an_unusable_reward_is_the_verifiers() -> None:
    outcome = judge_trial(reward=None, agent_status="Submitted", **ACTED)
    assert outcome.exit_status == "InfraError" and "without a reward" in outcome.eval_report["reason"]
    outcome = judge_trial(reward=math.inf, agent_status="Submitted", **ACTED)
    assert (outcome.reward, outcome.exit_status) == (0.0, "VerifierError")


def test_an_agent_that_reports_an_infrastructure_status_is_believed() -> None:
    outcome = judge_trial(reward=0.0, agent_status="ModelEndpointFailed", **ACTED)
    assert outcome.discard

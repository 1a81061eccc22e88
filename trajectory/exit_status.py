"""The one table of exit statuses: every way a trajectory can end and what that ending is worth.

The rule behind the table: discard only what the policy cannot have caused; score everything else. A discarded
sample takes its whole GRPO group with it, a failure scored 0 is training signal.

`judge.py` applies the table to what Harbor reports, `outcome.py` to what the agent server replies; tests and
documentation read the same rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class Worth(StrEnum):
    """What a trajectory that ended this way is worth to the trainer."""

    SCORED = "scored"
    """Trained on: with its reward, or with 0 where none was given."""
    DISCARDED = "discarded"
    """Not trained on, and neither is its group."""


@dataclass(frozen=True)
class ExitStatus:
    """One row of the table."""

    name: str
    worth: Worth
    meaning: str


_ROWS: Final = (
    ExitStatus("Submitted", Worth.SCORED, "the agent said that it is done"),
    ExitStatus("CommandSucceeded", Worth.SCORED, "a command ended with code 0 and the agent's rule ends there"),
    ExitStatus("TurnLimitExceeded", Worth.SCORED, "the agent used all of its turns"),
    ExitStatus("Unreported", Worth.SCORED, "a reward came without an exit status"),
    ExitStatus("TimeLimitExceeded", Worth.SCORED, "the agent used all of its time"),
    ExitStatus("SequenceLengthLimitExceeded", Worth.SCORED, "the conversation outgrew the context"),
    ExitStatus("OutputLengthExceeded", Worth.SCORED, "one answer outgrew its token limit"),
    ExitStatus("RepeatedFormatError", Worth.SCORED, "the agent gave up on answers in a wrong form"),
    ExitStatus("AgentError", Worth.SCORED, "the agent process ended with a non-zero code"),
    ExitStatus(
        "ResourceLimitExceeded", Worth.SCORED, "what ran in the sandbox used more memory or disk than a trial may"
    ),
    ExitStatus("VerifierError", Worth.SCORED, "the verifier gave no usable reward after the agent acted"),
    ExitStatus("SandboxUnavailable", Worth.DISCARDED, "the sandbox could not be built, started or set up"),
    ExitStatus("TaskBroken", Worth.DISCARDED, "the task folder is at fault"),
    ExitStatus("VerifierUnavailable", Worth.DISCARDED, "the verifier's files could not be moved in or out"),
    ExitStatus("ModelEndpointFailed", Worth.DISCARDED, "the model endpoint refused, failed or was not there"),
    ExitStatus("NeverRan", Worth.DISCARDED, "no model call was made"),
    ExitStatus("InfraError", Worth.DISCARDED, "any other error of the trial"),
    ExitStatus("Aborted", Worth.DISCARDED, "flushed or cancelled"),
    ExitStatus("ServerUnreachable", Worth.DISCARDED, "the agent server or the way to it was gone"),
    ExitStatus("RequestRejected", Worth.DISCARDED, "the agent server refused the request"),
    ExitStatus("ServerTimeout", Worth.DISCARDED, "the agent server did not answer within AGENT_TRIAL_TIMEOUT"),
    ExitStatus("InvalidReply", Worth.DISCARDED, "the agent server's reply broke the contract"),
    ExitStatus("AgentFunctionFailed", Worth.DISCARDED, "the agent function itself raised"),
    ExitStatus("SessionUnusable", Worth.DISCARDED, "the recorded session gave no trainable sample"),
    ExitStatus("NoReward", Worth.DISCARDED, "a sample reached the reward function without a reward"),
)

STATUSES: Final[Mapping[str, ExitStatus]] = MappingProxyType({row.name: row for row in _ROWS})


def _table(status: str, *exception_names: str) -> dict[str, str]:
    return dict.fromkeys(exception_names, status)


# Keys below are class names as Harbor 0.26 records them; Harbor's own subclasses are listed by name because a
# result on disk carries the name and not the class.
POLICY_FAULTS: Final[Mapping[str, str]] = MappingProxyType(
    _table("TimeLimitExceeded", "AgentTimeoutError")
    | _table("SequenceLengthLimitExceeded", "ContextLengthExceededError", "ContextWindowExceededError")
    | _table("OutputLengthExceeded", "OutputLengthExceededError", "OutputTokenExceededError")
    | _table("AgentError", "NonZeroAgentExitCodeError")
)
"""Exceptions the policy can have caused: the verifier's reward counts, 0 where it gave none."""

VERIFIER_FAULTS: Final[Mapping[str, str]] = MappingProxyType(
    _table(
        "VerifierError",
        "RewardFileNotFoundError",
        "RewardFileEmptyError",
        "VerifierOutputParseError",
        "VerifierTimeoutError",
    )
)
"""The verifier ran and gave nothing usable; what the agent left behind can be the reason, so they score 0."""

RESOURCE_FAULTS: Final[Mapping[str, str]] = MappingProxyType(_table("ResourceLimitExceeded", "SandboxLimitExceeded"))
"""The sandbox was ended for what ran in it: no verdict is asked for any more, so they score 0."""

SANDBOX_FAULTS: Final[Mapping[str, str]] = MappingProxyType(
    _table(
        "SandboxUnavailable",
        "SandboxBuildFailedError",
        "EnvironmentStartTimeoutError",
        "HealthcheckError",
        "AgentSetupTimeoutError",
        "SandboxUnavailable",
    )
)
"""No sandbox to act in."""

TASK_FAULTS: Final[Mapping[str, str]] = MappingProxyType(
    _table(
        "TaskBroken",
        "TaskBroken",
        "FileNotFoundError",
        "NotADirectoryError",
        "UnicodeDecodeError",
        "ValidationError",
        "TOMLDecodeError",
    )
)
"""Raised before the agent started, these name the task folder; later they are an error like any other."""

VERIFIER_TRANSFER_FAULTS: Final[Mapping[str, str]] = MappingProxyType(
    _table("VerifierUnavailable", "AddTestsDirError", "DownloadVerifierDirError")
)
"""Upload or download around the verifier failed."""

MODEL_ENDPOINT_FAULTS: Final[Mapping[str, str]] = MappingProxyType(
    _table(
        "ModelEndpointFailed",
        "ModelEndpointFailed",
        # Harbor's names for what an installed agent prints
        "ApiError",
        "ApiRateLimitError",
        "ApiUsageLimitError",
        "ApiInternalServerError",
        "ApiOverloadedError",
        "ApiConnectionClosedError",
        "ApiConnectionError",
        "ApiResponseStalledError",
        "ApiProviderResourceNotFoundError",
        "UnknownApiError",
        "AgentAuthenticationError",
        "ModelNotFoundError",
        "NetworkConnectionError",
        # names of the openai and litellm clients, escaping agents that run in the server
        "APIConnectionError",
        "APIError",
        "APIResponseValidationError",
        "APITimeoutError",
        "AuthenticationError",
        "BadGatewayError",
        "InternalServerError",
        "NotFoundError",
        "PermissionDeniedError",
        "RateLimitError",
        "ServiceUnavailableError",
        "Timeout",
    )
)
"""The model's side failed, whatever the verifier said afterwards."""

CANCELLATIONS: Final[Mapping[str, str]] = MappingProxyType(_table("Aborted", "CancelledError"))
"""The trial was ended from outside."""


def worth_of(status: str, *, has_reward: bool) -> Worth:
    """The worth of a reported exit status.

    A status that is not in the table is an agent's own: it counts where a reward came with it, otherwise nothing
    says that the policy could have caused it.
    """
    row = STATUSES.get(status)
    if row is not None:
        return row.worth
    return Worth.SCORED if has_reward else Worth.DISCARDED

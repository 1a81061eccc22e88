"""A run whose infrastructure is gone ends with the cause."""

import pytest

from trajectory.discards import ConsecutiveDiscards, TooManyDiscards
from trajectory.outcome import Outcome, discarded


def test_the_limit_names_the_causes_and_the_way_out() -> None:
    discards = ConsecutiveDiscards(3)
    discards.record(discarded("ServerUnreachable"))
    discards.record(discarded("ServerUnreachable"))
    with pytest.raises(TooManyDiscards) as caught:
        discards.record(discarded("InfraError", reason="KeyError: x"))
    message = str(caught.value)
    for part in ("3 trajectories", "limit 3", "ServerUnreachable 2", "InfraError 1", "KeyError: x", "--max-consec"):
        assert part in message
    assert discards.exceeded is caught.value


@pytest.mark.parametrize("reason", ["HTTP 404: unknown instance_id", "HTTP 422: unknown agent_name 'shel'"])
def test_a_server_that_refuses_the_task_or_the_agent_is_not_met_with_patience(reason: str) -> None:
    with pytest.raises(TooManyDiscards, match=r"instance_id.*agent_name") as caught:
        ConsecutiveDiscards(1).record(discarded("RequestRejected", reason=reason))
    assert reason in str(caught.value) and "--max-consec" not in str(caught.value)


@pytest.mark.parametrize("reason", ["HTTP 405: Method Not Allowed", "HTTP 501: Unsupported method"])
def test_another_service_at_the_address_is_named_as_such(reason: str) -> None:
    with pytest.raises(TooManyDiscards, match="no agent server: correct the address"):
        ConsecutiveDiscards(1).record(discarded("RequestRejected", reason=reason))


def test_a_server_that_is_full_may_be_waited_for() -> None:
    with pytest.raises(TooManyDiscards, match="--max-consecutive-discards"):
        ConsecutiveDiscards(1).record(discarded("RequestRejected", reason="HTTP 429: full"))


def test_a_scored_trajectory_breaks_the_row() -> None:
    discards = ConsecutiveDiscards(2)
    for _ in range(5):
        discards.record(discarded("InfraError"))
        discards.record(Outcome(0.0, "TurnLimitExceeded"))
    assert discards.exceeded is None


def test_flushed_trajectories_neither_count_nor_break_the_row() -> None:
    discards = ConsecutiveDiscards(2)
    discards.record(discarded("InfraError"))
    for _ in range(5):
        discards.record(discarded("Aborted"))
    with pytest.raises(TooManyDiscards):
        discards.record(discarded("InfraError"))


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="got 0"):
        ConsecutiveDiscards(0)

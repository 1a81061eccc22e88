"""What the client makes of an agent server's reply."""

import json
import math
from typing import Any

import pytest

from trajectory.outcome import Outcome, discarded, finite_number


@pytest.mark.parametrize(
    ("reply", "reward", "status"),
    [
        ('{"reward": 1, "exit_status": "Submitted"}', 1.0, "Submitted"),
        ('{"reward": -0.5, "exit_status": "Submitted"}', -0.5, "Submitted"),
        ('{"reward": 1}', 1.0, "Unreported"),
        ('{"reward": 0.25, "exit_status": "SomethingOfTheAgent"}', 0.25, "SomethingOfTheAgent"),
        ('{"exit_status": "VerifierError"}', 0.0, "VerifierError"),
        ('{"reward": null, "exit_status": "TimeLimitExceeded"}', 0.0, "TimeLimitExceeded"),
        ('{"exit_status": "SandboxUnavailable"}', None, "SandboxUnavailable"),
        ('{"reward": null, "exit_status": "SomethingOfTheAgent"}', None, "SomethingOfTheAgent"),
        ('{"reward": 0.0, "exit_status": "InfraError"}', None, "InfraError"),
        ('{"reward": 1e999, "exit_status": "Submitted"}', None, "InvalidReply"),
        ('{"reward": NaN, "exit_status": "Submitted"}', None, "InvalidReply"),
        ('{"reward": -Infinity, "exit_status": "Submitted"}', None, "InvalidReply"),
        ('{"reward": "NaN", "exit_status": "Submitted"}', None, "InvalidReply"),
        ('{"reward": "1", "exit_status": "Submitted"}', None, "InvalidReply"),
        ('{"reward": true, "exit_status": "Submitted"}', None, "InvalidReply"),
        ('{"reward": {"reward": 1}, "exit_status": "Submitted"}', None, "InvalidReply"),
        ('{"reward": [1], "exit_status": "VerifierError"}', None, "InvalidReply"),
        ('{"reward": 1' + "0" * 400 + ', "exit_status": "Submitted"}', None, "InvalidReply"),
        ('{"reward": 1, "exit_status": 3}', None, "InvalidReply"),
        ('{"reward": 1, "exit_status": ""}', None, "InvalidReply"),
        ('{"reward": null, "exit_status": null}', None, "InvalidReply"),
        ("{}", None, "InvalidReply"),
        ("[]", None, "InvalidReply"),
        ('"fine"', None, "InvalidReply"),
        ("null", None, "InvalidReply"),
    ],
)
def test_only_finite_numbers_count_as_a_reward(reply: str, reward: float | None, status: str) -> None:
    outcome = Outcome.from_reply(json.loads(reply))
    assert (outcome.reward, outcome.exit_status, outcome.discard) == (reward, status, reward is None)
    assert type(outcome.reward) in (float, type(None))


def test_report_and_metrics_of_a_reply_are_kept_and_broken_ones_left_out(caplog: pytest.LogCaptureFixture) -> None:
    full: dict[str, Any] = {"reward": 1, "eval_report": {"a": 1}, "agent_metrics": {"turns": 2}}
    outcome = Outcome.from_reply(full)
    assert (outcome.eval_report, outcome.agent_metrics) == ({"a": 1}, {"turns": 2})
    assert not caplog.records
    broken = Outcome.from_reply({"reward": 1, "eval_report": [1], "agent_metrics": "x"})
    assert (broken.reward, broken.eval_report, broken.agent_metrics) == (1.0, {}, {})
    assert len(caplog.records) == 2


def test_report_too_deep_for_a_dump_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    def nested(levels: int) -> dict[str, Any]:
        return {"x": json.loads("[" * levels + "]" * levels)}

    outcome = Outcome.from_reply({"reward": 1, "eval_report": nested(900), "agent_metrics": nested(60)})
    assert (outcome.reward, outcome.eval_report, outcome.agent_metrics) == (1.0, {}, nested(60))
    assert "nested deeper than 64 levels" in caplog.text


def test_discard_goes_with_no_reward() -> None:
    assert discarded("Aborted", reason="flushed").as_dict() == {
        "reward": None,
        "exit_status": "Aborted",
        "discard": True,
        "eval_report": {"reason": "flushed"},
        "agent_metrics": {},
    }
    with pytest.raises(ValueError, match="does not go with reward"):
        Outcome(1.0, "Submitted", discard=True)
    with pytest.raises(ValueError, match="does not go with reward"):
        Outcome(None, "Submitted")
    with pytest.raises(ValueError, match="finite"):
        Outcome(math.nan, "Submitted")


def test_finite_number_takes_no_verdict_for_a_number() -> None:
    assert finite_number(True) is None
    assert finite_number("1") is None
    assert finite_number(10**400) is None
    assert finite_number(2) == 2.0

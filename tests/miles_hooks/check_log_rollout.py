# Miles is on the path only of the process that runs this file.
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
"""log_rollout, called as Miles calls --custom-rollout-log-function-path; run by tests/test_generate.py.

Real: Miles' tracking manager and step count. STUBS: those of miles_parts, and the tracker.
"""

import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from miles.utils import tracking_utils
from miles.utils.misc import load_function
from miles.utils.tracking_utils.base import TrackingBackend
from miles.utils.types import Sample

import generate
from tests.agent_server_stub import Answer
from tests.miles_hooks.miles_parts import Setup, groups_in, prompt


class RecordingBackend(TrackingBackend):
    """STUB of a tracker."""

    def __init__(self) -> None:
        self.logged: list[tuple[int | None, dict[str, Any]]] = []

    def init(self, args: Any, *, primary: bool = True, **kwargs: Any) -> None:
        raise NotImplementedError

    def log(self, metrics: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        self.logged.append((step, metrics))

    def finish(self) -> None:
        raise NotImplementedError


@pytest.fixture
def tracker(monkeypatch: pytest.MonkeyPatch) -> RecordingBackend:
    backend = RecordingBackend()
    monkeypatch.setattr(tracking_utils._manager, "_backends", [backend])
    return backend


async def ended(setup: Setup, *replies: dict[str, Any]) -> list[Sample]:
    """One trajectory for each reply, two to a group, as the fully asynchronous worker runs them."""
    samples: list[Sample] = []
    for index, reply in enumerate(replies):
        setup.agent.answer = lambda request, reply=reply: Answer(json.dumps(reply))
        samples.append(await setup.one(prompt(index)))
        samples[-1].reward = await generate.reward_func(setup.args, samples[-1])
    return samples


def scored(reward: float, **metrics: float) -> dict[str, Any]:
    return {"reward": reward, "exit_status": "Submitted", "agent_metrics": metrics}


async def test_an_asynchronous_rollout_logs_the_agents_numbers_beside_those_of_miles(
    setup: Setup, tracker: RecordingBackend
) -> None:
    lost = {"exit_status": "NeverRan"}
    samples = await ended(
        setup,
        *(scored(1, turns=2, commands=3, model_seconds=4.0, command_seconds=0.5), scored(0, turns=4)),
        *(scored(1), lost),
        *(scored(1), scored(1)),
    )
    trained = [samples[0], samples[1], samples[4], samples[5]]
    log = load_function("generate.log_rollout")
    assert log(3, setup.args, trained, {"rollout/fully_async/queue_size": 1}, 12.5) is False
    ((step, logged),) = tracker.logged
    assert (step, logged["rollout/step"]) == (3, 3)
    assert (logged["agent/turns_mean"], logged["agent/turns_max"], logged["agent/tool_calls_mean"]) == (3.0, 4.0, 3.0)
    assert (logged["agent/model_seconds_max"], logged["agent/environment_seconds_mean"]) == (4.0, 0.5)
    assert logged["agent/exit_status/Submitted"] == 1.0
    assert (logged["agent/trajectories"], logged["agent/discarded"], logged["agent/never_ran"]) == (6.0, 1.0, 1.0)
    assert groups_in(logged) == {"scored": 2.0, "no_signal": 1.0, "discarded": 1.0, "never_ran": 1.0}
    log(4, setup.args, trained, None, 1.0)
    assert tracker.logged[1][1]["agent/trajectories"] == 0.0, "counted once"


async def test_the_step_is_the_one_that_miles_logs_at(setup: Setup, tracker: RecordingBackend) -> None:
    setup.args.wandb_always_use_train_step, setup.args.global_batch_size = True, 1
    generate.log_rollout(3, setup.args, [], None, 1.0)
    assert tracker.logged[0][0] == 3 * 2 * 2


async def test_the_newest_miles_keeps_its_tracking_one_module_deeper(
    setup: Setup, tracker: RecordingBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[Any] = []
    newest = SimpleNamespace(log=lambda args, metrics, step_key: logged.append((metrics[step_key], step_key)))
    monkeypatch.setitem(sys.modules, "miles.utils.tracking_utils.tracking", newest)
    generate.log_rollout(5, setup.args, [], None, 1.0)
    assert (logged, tracker.logged) == ([(5, "rollout/step")], [])


async def test_samples_of_an_earlier_run_are_not_logged(setup: Setup, tracker: RecordingBackend) -> None:
    setup.args.load_debug_rollout_data = "dump"
    assert generate.log_rollout(0, setup.args, [], None, 1.0) is False
    assert not tracker.logged


async def test_without_a_traces_folder_this_process_counts_for_itself(
    setup: Setup, tracker: RecordingBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRACES_DIR")
    await ended(setup, scored(1), {"exit_status": "InfraError"})
    generate.log_rollout(0, setup.args, [], None, 1.0)
    assert tracker.logged[0][1]["agent/groups/discarded"] == tracker.logged[0][1]["agent/discarded/InfraError"] == 1.0

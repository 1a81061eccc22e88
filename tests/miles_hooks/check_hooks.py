# Miles is on the path only of the process that runs this file.
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
"""The hooks against the real classes of miles-rl; run by tests/test_generate.py in a process of its own.

Real: Miles' agentic generate, tracer, sample assembly, group generation, rollout, filter, and our agent function.
STUBS: those of miles_parts, and the data source.
"""

import argparse
import asyncio
from pathlib import Path
from typing import Any

import pytest
from miles.rollout.base_types import RolloutFnConstructorInput, RolloutFnTrainInput
from miles.rollout.generate_hub import agentic_tool_call
from miles.rollout.inference_rollout import inference_rollout_common
from miles.utils.misc import load_function
from miles.utils.types import Sample

import generate
from tests.agent_server_stub import Answer, Request
from tests.miles_hooks.miles_parts import Setup, groups_in, prompt, record
from tests.outcomes_on_disk import read_outcomes
from trajectory.discards import TooManyDiscards

Status = Sample.Status


# ---- generate ----


async def test_a_scored_trajectory_is_the_merged_session_with_the_outcome_in_its_metadata(setup: Setup) -> None:
    setup.agent.answer = lambda request: Answer(
        '{"reward": 0.5, "exit_status": "Submitted", "eval_report": {"ok": true}, "agent_metrics": {"turns": 2}}'
    )
    sample = await setup.one()
    assert sample.status is Status.COMPLETED
    assert (sample.tokens, sample.response, sample.response_length) == ([1, 2, 3, 4, 5, 6], "cdef", 4)
    assert (sample.loss_mask, sample.reward) == ([1, 1, 0, 1], None)
    assert await generate.reward_func(setup.args, sample) == 0.5
    assert {key: sample.metadata[key] for key in ("instance_id", "exit_status", "discard", "eval_report")} == {
        "instance_id": "mkdir-train-000000",
        "exit_status": "Submitted",
        "discard": False,
        "eval_report": {"ok": True},
    }
    (body,) = (request.body for request in setup.agent.requests)
    assert body["base_url"] == f"http://127.0.0.1:{setup.args.session_server_port}/sessions/s1/v1"
    assert body["session_server_id"] == f"127.0.0.1:{setup.args.session_server_port}"
    assert (body["session_server_instance_id"], body["max_seq_len"]) == ("instance-1", 1024)
    assert body["sampling_params"]["max_tokens"] == 8
    (line,) = read_outcomes(setup.traces)
    assert (line["exit_status"], line["reward"], line["discard"]) == ("Submitted", 0.5, False)
    assert (line["group_index"], line["index"], line["instance_id"]) == (0, 0, "mkdir-train-000000")
    assert line["agent_metrics"] == {"turns": 2}
    assert "rollout_id" not in line


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (Answer('{"exit_status": "SandboxUnavailable"}'), "SandboxUnavailable"),
        (Answer("boom", 500), "RequestRejected"),
        (Answer(reset=True), "ServerUnreachable"),
        (Answer("[]"), "InvalidReply"),
    ],
)
async def test_a_discard_is_aborted_though_miles_kept_the_session(setup: Setup, answer: Answer, status: str) -> None:
    setup.agent.answer = lambda request: answer
    sample = await setup.one()
    assert sample.tokens, "Miles kept the session"
    assert (sample.status, sample.reward) == (Status.ABORTED, None)
    assert (sample.metadata["exit_status"], sample.metadata["discard"]) == (status, True)
    (line,) = read_outcomes(setup.traces)
    assert (line["exit_status"], line["reward"], line["discard"]) == (status, None, True)


async def test_every_sample_of_a_trajectory_is_aborted_with_it(setup: Setup) -> None:
    setup.args.generate_multi_samples = True
    setup.agent.answer = lambda request: Answer('{"exit_status": "InfraError"}')
    samples = await setup.one()
    assert [sample.status for sample in samples] == [Status.ABORTED] * 2
    assert {sample.metadata["exit_status"] for sample in samples} == {"InfraError"}
    assert len(read_outcomes(setup.traces)) == 1


async def test_the_answer_survives_a_session_without_a_model_call(setup: Setup) -> None:
    setup.sessions.records = []
    setup.agent.answer = lambda request: Answer('{"exit_status": "SandboxUnavailable"}')
    assert (await setup.one()).metadata["exit_status"] == "SandboxUnavailable"
    setup.agent.answer = lambda request: Answer('{"reward": 1.0, "exit_status": "Submitted"}')
    sample = await setup.one()
    assert (sample.status, sample.metadata["exit_status"]) == (Status.ABORTED, "NeverRan")
    assert [line["exit_status"] for line in read_outcomes(setup.traces)] == ["SandboxUnavailable", "NeverRan"]


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("records", [[record([1, 2], [])], [record([1, 2], []), record([1, 2, 4], [])]])
async def test_a_session_without_a_sampled_token_is_discarded_whatever_its_reward(
    setup: Setup, records: list[dict[str, Any]], several: bool
) -> None:
    setup.args.generate_multi_samples = several
    setup.sessions.records = records
    produced = await setup.one()
    samples = produced if several else [produced]
    assert {(sample.status, sample.metadata["exit_status"]) for sample in samples} == {
        (Status.ABORTED, "SessionUnusable")
    }
    (line,) = read_outcomes(setup.traces)
    assert (line["exit_status"], line["reward"]) == ("SessionUnusable", None)
    assert "no token" in line["reason"]


async def test_an_answer_without_a_token_leaves_the_other_samples_of_its_trajectory(setup: Setup) -> None:
    setup.args.generate_multi_samples = True
    setup.sessions.records = [record([1, 2], [3]), record([1, 2, 3, 4], [])]
    (sample,) = await setup.one()
    assert (sample.status, sample.response_length, sample.metadata["exit_status"]) == (Status.COMPLETED, 1, "Submitted")


async def test_turns_that_do_not_line_up_are_one_discard(setup: Setup) -> None:
    setup.sessions.records = [record([1, 2], [3]), record([9, 9, 9, 9], [6])]
    sample = await setup.one()
    assert (sample.status, sample.metadata["exit_status"]) == (Status.ABORTED, "SessionUnusable")
    assert "AssertionError" in read_outcomes(setup.traces)[0]["reason"]


async def test_a_session_that_its_server_refuses_to_put_together_is_one_discard(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(tracer: Any) -> None:
        raise RuntimeError("POST http://127.0.0.1:30000/sessions/s1/samples failed with 422: trim_count 3 exceeds 1")

    monkeypatch.setattr(agentic_tool_call.OpenAIEndpointTracer, "collect_records", refused)
    sample = await setup.one()
    assert (sample.status, sample.metadata["exit_status"]) == (Status.ABORTED, "SessionUnusable")
    assert "failed with 422" in read_outcomes(setup.traces)[0]["reason"]


async def raising(**kwargs: Any) -> None:
    raise RuntimeError("bug")


async def silent(**kwargs: Any) -> None:
    return None


async def in_another_process(**kwargs: Any) -> dict[str, Any]:
    return {"reward": 1.0, "exit_status": "Submitted"}


@pytest.mark.parametrize(
    ("function", "status", "aborted"),
    [
        (raising, "AgentFunctionFailed", True),
        (silent, "AgentFunctionFailed", True),
        (in_another_process, "Submitted", False),
    ],
)
async def test_an_agent_function_of_another_kind_is_judged_by_what_miles_merged(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, function: Any, status: str, aborted: bool
) -> None:
    monkeypatch.setattr(agentic_tool_call, "load_function", lambda path: function)
    stale = prompt(0)
    stale.metadata |= {"reward": 1.0, "exit_status": "Submitted"}
    sample = await setup.one(stale)
    assert (sample.metadata["exit_status"], sample.status is Status.ABORTED) == (status, aborted)


async def test_a_cancelled_trajectory_leaves_a_line_and_ends_the_trial(setup: Setup) -> None:
    setup.agent.answer = lambda request: Answer(delay=30)
    task = asyncio.create_task(setup.one())
    while not setup.agent.requests:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [line["exit_status"] for line in read_outcomes(setup.traces)] == ["Aborted"]


async def test_a_discarded_evaluation_counts_as_zero(setup: Setup) -> None:
    setup.agent.answer = lambda request: Answer("boom", 500)
    sample = await setup.one(evaluation=True)
    assert (sample.status, sample.reward) == (Status.ABORTED, 0.0)
    assert read_outcomes(setup.traces)[0]["evaluation"] is True


async def test_dump_details_is_where_outcomes_go_without_traces_dir(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("TRACES_DIR")
    setup.args.dump_details = str(tmp_path / "details")
    await setup.one()
    assert len(read_outcomes(tmp_path / "details")) == 1


# ---- arguments ----


def test_add_arguments_are_exactly_those_of_the_wrapped_function() -> None:
    def options(function: Any) -> list[tuple[Any, ...]]:
        parser = argparse.ArgumentParser()
        function.add_arguments(parser)
        return [(action.option_strings, action.dest, action.default, action.type) for action in parser._actions]

    # As Miles' parser finds it.
    assert options(load_function("generate.generate")) == options(agentic_tool_call.generate)
    assert any("--max-seq-len" in option[0] for option in options(generate.generate))


# ---- reward_func ----


async def test_a_sample_without_a_reward_is_aborted_counted_and_worth_zero(setup: Setup) -> None:
    with_reward, without = prompt(0), prompt(1)
    with_reward.metadata["reward"] = 1
    without.metadata["reward"] = float("nan")
    assert await generate.reward_func(setup.args, [with_reward, without]) == [1.0, 0.0]
    assert (with_reward.status, without.status) == (Status.PENDING, Status.ABORTED)
    assert without.metadata["exit_status"] == "NoReward"
    assert generate._discards().count == 1
    assert await generate.reward_func(setup.args, without) == 0.0
    assert generate._discards().count == 1, "counted once"


# ---- RolloutFn ----


class DataSourceStub:
    """STUB: prompts without end."""

    def __init__(self) -> None:
        self.next = 0

    def get_samples(self, count: int) -> list[list[Sample]]:
        groups = [[prompt(self.next + 2 * group), prompt(self.next + 2 * group + 1)] for group in range(count)]
        self.next += 2 * count
        return groups

    def add_samples(self, groups: list[Any]) -> None:
        assert groups == []


def rollout_fn(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> Any:
    state = setup.state()
    monkeypatch.setattr(inference_rollout_common, "GenerateState", lambda args: state)
    cls = load_function("generate.RolloutFn")
    assert issubclass(cls, inference_rollout_common.InferenceRolloutFn)
    assert cls is load_function("generate.RolloutFn")
    return cls(RolloutFnConstructorInput(args=setup.args, data_source=DataSourceStub()))


async def test_the_rollout_refills_discarded_groups_and_reports_the_agents_numbers(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(request: Request) -> Answer:
        if request.body["instance_id"] == "mkdir-train-000001":
            return Answer("queue full", 429)
        return Answer('{"reward": 1, "exit_status": "Submitted", "agent_metrics": {"turns": 2}}')

    setup.agent.answer = answer
    output = await rollout_fn(setup, monkeypatch)(RolloutFnTrainInput(rollout_id=7))
    assert [[sample.reward for sample in group] for group in output.samples] == [[1.0, 1.0]] * 2
    assert output.metrics["agent/turns_mean"] == 2.0
    assert output.metrics["agent/exit_status/Submitted"] == 1.0
    assert output.metrics["agent/discarded"] == output.metrics["agent/discarded/RequestRejected"] == 1.0
    assert output.metrics["agent/trajectories"] == 6.0
    assert groups_in(output.metrics) == {"scored": 2.0, "no_signal": 2.0, "discarded": 1.0, "never_ran": 0.0}
    assert output.metrics["rollout/dynamic_filter/drop_group_has_aborted"] == 1
    lines = read_outcomes(setup.traces)
    assert len(lines) == 6
    assert {line["rollout_id"] for line in lines} == {7}


async def test_a_rollout_of_nothing_but_discards_ends_with_the_cause(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAX_CONSECUTIVE_DISCARDS", "6")
    setup.agent.answer = lambda request: Answer("no such route", 404)
    async with asyncio.timeout(20):
        with pytest.raises(TooManyDiscards, match=r"RequestRejected.*HTTP 404"):
            await rollout_fn(setup, monkeypatch)(RolloutFnTrainInput(rollout_id=0))


async def test_the_limit_ends_a_group_too_and_with_it_the_fully_asynchronous_worker(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAX_CONSECUTIVE_DISCARDS", "2")
    setup.agent.answer = lambda request: Answer("busy", 503)
    with pytest.raises(TooManyDiscards, match=r"ServerUnreachable 2.*HTTP 503"):
        await inference_rollout_common.generate_and_rm_group(
            setup.state(), [prompt(0), prompt(1)], {"temperature": 1.0}
        )


async def test_a_limit_that_makes_no_sense_is_refused_before_the_first_rollout(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAX_CONSECUTIVE_DISCARDS", "none")
    with pytest.raises(ValueError, match="MAX_CONSECUTIVE_DISCARDS=none"):
        rollout_fn(setup, monkeypatch)

"""Miles' hooks of the agentic launchers, thin adapters of `trajectory/` to Miles' types.

  --custom-generate-function-path generate.generate     records what a trajectory came to, aborts a discard
  --custom-rm-path                generate.reward_func  the reward that the agent server gave
  --rollout-function-path         generate.RolloutFn    the agents' numbers in the step's metrics (synchronous)
  --custom-rollout-log-function-path generate.log_rollout  the same for the fully asynchronous rollout

Environment, set by the launchers: TRACES_DIR (where the outcomes file goes, else --dump-details) and
MAX_CONSECUTIVE_DISCARDS (256). Importing this file needs no Miles; using its Miles hooks does.
"""

import argparse
import asyncio
import copy
import functools
import importlib
import logging
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import httpx

from swe_agent_function import abort
from trajectory.discards import ConsecutiveDiscards, TooManyDiscards
from trajectory.metrics import aggregate_agent_metrics, flat_samples, sample_metadata
from trajectory.outcome import Outcome, discarded, finite_number
from trajectory.outcomes_file import OutcomesFile, OutcomesTail, outcome_line
from trajectory.report import listening
from trajectory.sample import OUTCOME_KEYS, mark_sample
from trajectory.step_outcomes import StepOutcomes

if TYPE_CHECKING:
    RolloutFn: type[Any]

__all__ = ["RolloutFn", "aggregate_agent_metrics", "generate", "log_rollout", "reward_func"]

logger = logging.getLogger(__name__)

DEFAULT_MAX_CONSECUTIVE_DISCARDS = 256
WATCH_INTERVAL = 0.5

# What Miles raises when a session cannot be read or its turns do not line up: a RuntimeError where the session server
# puts them together and refuses. One such trajectory is discarded; in the fully asynchronous rollout it would end the
# whole run.
SESSION_FAULTS = (AssertionError, KeyError, ValueError, RuntimeError, TimeoutError, OSError, httpx.HTTPError)


STEP_KEY = "rollout/step"


@dataclass
class _Traces:
    """The outcomes file of this process, and what all processes append beside it."""

    file: OutcomesFile
    tail: OutcomesTail


class _Rollout:
    """The rollout in progress and what has become of its trajectories."""

    def __init__(self) -> None:
        self.rollout_id: int | None = None
        """None where nobody knows it: fully asynchronous."""

    def record(self, args: Any, line: dict[str, Any]) -> None:
        traces = _traces(_traces_dir(args))
        # Counted from the file, where other processes write as well; here only what did not get there.
        if traces is None or not traces.file.append(line):
            _step_outcomes(args.n_samples_per_prompt).add(line)

    def metrics(self, args: Any) -> dict[str, float]:
        """Trajectories and groups since the last call; the samples that Miles keeps do not show the discarded ones."""
        step = _step_outcomes(args.n_samples_per_prompt)
        traces = _traces(_traces_dir(args))
        for line in traces.tail.read() if traces is not None else ():
            step.add(line)
        return step.metrics()


_rollout = _Rollout()


async def generate(input: Any) -> Any:
    """Miles' agentic generate, with the outcome carried into every sample and into the outcomes file.

    Takes a `GenerateFnInput`, answers the `GenerateFnOutput` of Miles with one Sample or a list of them. A discard
    sets `Sample.Status.ABORTED` and the exit status, whatever session Miles kept. Raises
    `trajectory.discards.TooManyDiscards` when nothing but discards has come for too long.
    """
    sample, evaluation = input.sample, bool(input.evaluation)
    # A prompt that is sampled again keeps the metadata of its last attempt.
    sample.metadata = {key: value for key, value in sample_metadata(sample).items() if key not in OUTCOME_KEYS}
    started = time.monotonic()

    def record(outcome: Outcome) -> None:
        line = outcome_line(
            outcome,
            seconds=time.monotonic() - started,
            group_index=sample.group_index,
            index=sample.index,
            instance_id=sample_metadata(sample).get("instance_id"),
            rollout_id=None if evaluation else _rollout.rollout_id,
            evaluation=evaluation,
        )
        _rollout.record(input.args, line)
        _discards().record(outcome)

    with listening() as reported:
        try:
            output = await _miles_generate()(input)
            failure = None
        except asyncio.CancelledError:
            record(discarded("Aborted", reason="the trajectory was cancelled"))
            raise
        except SESSION_FAULTS as error:
            logger.warning("session of sample %s is unusable", sample.index, exc_info=error)
            output = _miles("miles.rollout.base_types").GenerateFnOutput(samples=copy.deepcopy(sample))
            failure = f"{type(error).__name__}: {str(error)[:300]}"
    _drop_tokenless(output.samples)
    samples = flat_samples([output.samples])
    outcome = _outcome(reported[-1] if reported else None, samples, failure)
    for produced in samples:
        mark_sample(produced, outcome, evaluation=evaluation)
    record(outcome)
    return output


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds exactly what Miles' own agentic generate adds."""
    _miles_generate().add_arguments(parser)


# Miles' parser looks for this attribute on the function that --custom-generate-function-path names.
generate.add_arguments = _add_arguments  # pyright: ignore[reportFunctionMemberAccess]


async def reward_func(args: Any, samples: Any, **kwargs: Any) -> float | list[float]:
    """The reward that the trajectory carries: a float for one Sample, a list of floats for a list.

    A sample without a finite reward is aborted, counted as a discard and given 0.0, since Miles' metrics cannot
    take None.
    """
    if isinstance(samples, list | tuple):
        return [_reward(sample) for sample in cast(list[Any], samples)]
    return _reward(samples)


def _reward(sample: Any) -> float:
    known = sample_metadata(sample)
    reward = finite_number(known.get("reward"))
    if reward is not None:
        return reward
    status = known.get("exit_status")
    outcome = discarded(status if isinstance(status, str) and status else "NoReward", reason="no reward was given")
    if known.get("discard") is not True:
        # One that is marked already was counted by generate.
        mark_sample(sample, outcome)
        _discards().record(outcome)
    else:
        sample.status = type(sample.status)("aborted")
    return 0.0


def _outcome(reported: Outcome | None, samples: list[Any], failure: str | None) -> Outcome:
    """What the trajectory came to, from the agent function's answer and from what Miles made of the session."""
    outcome = reported or _outcome_in_metadata(samples)
    if outcome is not None and outcome.discard:
        return outcome
    if failure is not None:
        return discarded("SessionUnusable", reason=failure, agent_metrics=outcome.agent_metrics if outcome else None)
    if outcome is None:
        return discarded("AgentFunctionFailed", reason="the agent function raised or answered nothing")
    if any(map(_is_trainable, samples)):
        if all(sample.status.value != "aborted" for sample in samples):
            return outcome
        status, reason = "Aborted", ""
    elif outcome.agent_metrics.get("turns") or any(sample.status.value != "aborted" for sample in samples):
        status, reason = "SessionUnusable", "the session holds no token that the policy sampled"
    else:
        # Miles answers the bare prompt when it recorded no call, and when no call fits into --max-seq-len.
        status, reason = "NeverRan", ""
    return discarded(status, reason=reason, eval_report=outcome.eval_report, agent_metrics=outcome.agent_metrics)


def _drop_tokenless(produced: Any) -> None:
    """Trainers cannot take a sample without a token, which an answer without one leaves beside the others."""
    several = cast(list[Any], produced) if isinstance(produced, list) else []
    if kept := list(filter(_is_trainable, several)):
        several[:] = kept


def _is_trainable(sample: Any) -> bool:
    """Whether it holds a token that the policy sampled."""
    return sample.response_length > 0 and (sample.loss_mask is None or any(sample.loss_mask))


def _outcome_in_metadata(samples: list[Any]) -> Outcome | None:
    """The answer as Miles merged it: the only way where the agent function ran in a process of its own."""
    for sample in samples:
        metadata = sample_metadata(sample)
        if any(key in metadata for key in ("reward", "exit_status")):
            return Outcome.from_reply(dict(metadata))
    return None


def _traces_dir(args: Any) -> str | None:
    return os.environ.get("TRACES_DIR") or getattr(args, "dump_details", None)


@functools.cache
def _traces(traces_dir: str | None) -> _Traces | None:
    return _Traces(OutcomesFile(traces_dir), OutcomesTail(traces_dir)) if traces_dir else None


@functools.cache
def _step_outcomes(group_size: int) -> StepOutcomes:
    return StepOutcomes(group_size)


@functools.cache
def _discards() -> ConsecutiveDiscards:
    """The counter of this process; raises ValueError when MAX_CONSECUTIVE_DISCARDS is not a positive whole number."""
    raw = os.environ.get("MAX_CONSECUTIVE_DISCARDS", "").strip() or str(DEFAULT_MAX_CONSECUTIVE_DISCARDS)
    if not raw.isdecimal() or int(raw) < 1:
        raise ValueError(f"MAX_CONSECUTIVE_DISCARDS={raw} must be a whole number of 1 or more")
    return ConsecutiveDiscards(int(raw))


def _miles(module: str) -> Any:
    """A module of Miles, imported when it is needed."""
    return importlib.import_module(module)


def _miles_generate() -> Any:
    return _miles("miles.rollout.generate_hub.agentic_tool_call").generate


@functools.cache
def _rollout_fn_class() -> type[Any]:
    base: Any = _miles("miles.rollout.inference_rollout.inference_rollout_common").InferenceRolloutFn

    class RolloutFn(base):
        """Miles' rollout with the agents' numbers in its metrics, ended when nothing but discards comes."""

        def __init__(self, input: Any) -> None:
            _discards()
            base.__init__(self, input)

        async def _call_train(self, input: Any) -> Any:
            args = self.state.args
            _rollout.rollout_id = input.rollout_id
            try:
                output = await _until_too_many_discards(base._call_train(self, input), args)
            finally:
                _rollout.rollout_id = None
            metrics = aggregate_agent_metrics(output.samples) | _rollout.metrics(args)
            _step_outcomes(args.n_samples_per_prompt).forget_open_groups()
            output.metrics = {**(output.metrics or {}), **metrics}
            logger.info("agents of rollout %s: %s", input.rollout_id, metrics)
            return output

    RolloutFn.__qualname__ = "RolloutFn"
    return RolloutFn


def log_rollout(rollout_id: int, args: Any, samples: Any, extra: Any, rollout_time: float) -> bool:
    """The agents' numbers of one rollout, to Miles' trackers (W&B, Prometheus, ...) at the step of its own numbers.

    Miles calls it with the samples that it trains on; groups that it dropped come from the outcomes file. Answers
    False: Miles logs its own numbers as well.
    """
    del extra, rollout_time
    if args.load_debug_rollout_data:
        # Samples of an earlier run, which Miles does not log either.
        return False
    metrics = aggregate_agent_metrics(samples) | _rollout.metrics(args)
    logger.info("agents of rollout %s: %s", rollout_id, metrics)
    step = _miles("miles.utils.metric_utils").compute_rollout_step(args, rollout_id)
    _tracking().log(args, {**metrics, STEP_KEY: step}, step_key=STEP_KEY)
    return False


def _tracking() -> Any:
    try:
        return _miles("miles.utils.tracking_utils.tracking")
    except ModuleNotFoundError:
        # An older Miles has it one level up.
        return _miles("miles.utils.tracking_utils")


async def _until_too_many_discards(rollout: Any, args: Any) -> Any:
    """The rollout's result; raises TooManyDiscards as soon as the limit is reached.

    Miles logs what a single trajectory raises and goes on, so the limit is watched from here.
    """
    task = asyncio.ensure_future(rollout)
    try:
        while True:
            done, _ = await asyncio.wait({task}, timeout=WATCH_INTERVAL)
            if done:
                return task.result()
            exceeded = _discards().exceeded
            if exceeded is not None:
                raise TooManyDiscards(str(exceeded))
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await abort(args)


def __getattr__(name: str) -> Any:
    # The class needs Miles to exist; whoever asks for it has Miles.
    if name == "RolloutFn":
        return _rollout_fn_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

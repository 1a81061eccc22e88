"""One rollout: groups of trajectories through the agent function; a discarded group is replaced by another prompt's."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import generate
import swe_agent_function
from local_engine.checkpoint import DataPosition
from local_engine.config import LocalRunConfig
from local_engine.data import PromptStream
from local_engine.engine import Engine
from local_engine.session import Session
from local_engine.staleness import Staleness
from local_engine.training_data import Sample
from miles_data.prompts import Prompt
from trajectory.discards import ConsecutiveDiscards
from trajectory.outcome import Outcome, discarded
from trajectory.outcomes_file import OutcomesFile, outcome_line
from trajectory.sample import make_sample

CUT_SHORT = ("SequenceLengthLimitExceeded", "OutputLengthExceeded")

Report = Callable[[int, int, int], None]  # ended, of how many, discarded


@dataclass
class Counters:
    """Next indices of groups and samples of the run; they go on after a resume."""

    group: int = 0
    sample: int = 0

    def copy(self) -> "Counters":
        return Counters(self.group, self.sample)


@dataclass(frozen=True)
class StartedGroup:
    """Index of a group, that of its first sample, and where its prompt is in the data."""

    group: int
    first: int
    position: DataPosition


@dataclass
class RolloutResult:
    """Complete groups in the order of their slots, and what was lost on the way. Times in seconds."""

    groups: list[list[Sample]] = field(default_factory=list[list[Sample]])
    messages: dict[int, list[dict[str, Any]]] = field(default_factory=dict[int, list[dict[str, Any]]])
    discarded: Counter[str] = field(default_factory=Counter[str])
    seconds: float = 0.0
    staleness: Staleness | None = None  # None where the weights stand still meanwhile

    @property
    def samples(self) -> list[Sample]:
        return [s for g in self.groups for s in g]


class Collector:
    """Runs trajectories of prompts against an engine and keeps the record of every one."""

    def __init__(
        self, engine: Engine, outcomes: OutcomesFile, discards: ConsecutiveDiscards, counters: Counters
    ) -> None:
        self._engine = engine
        self._config: LocalRunConfig = engine.config
        self._outcomes = outcomes
        self._discards = discards
        self.counters = counters

    async def rollout(self, rollout_id: int, prompts: PromptStream, report: Report) -> RolloutResult:
        """rollout_batch_size complete groups; one with a discarded trajectory is replaced by the next prompt's.

        Raises TooManyDiscards when nothing but discards come back.
        """
        config, result = self._config, RolloutResult()
        started, size = time.monotonic(), config.n_samples_per_prompt
        complete: dict[int, list[Sample]] = {}
        ended = 0

        def one_ended() -> None:
            nonlocal ended
            ended += 1
            lost = result.discarded.total()
            report(ended - lost, config.rollout_batch_size * size, lost)

        def start(slot: int) -> asyncio.Task[list[Sample]]:
            group = self.next_group(prompts)
            return self.start_group(rollout_id, prompts.at(group.position), group, result, one_ended)

        running = {start(slot): slot for slot in range(config.rollout_batch_size)}
        try:
            while running:
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in sorted(done, key=lambda t: running[t]):
                    slot = running.pop(task)
                    samples = task.result()
                    if any(s["status"] == "aborted" for s in samples):
                        running[start(slot)] = slot
                    else:
                        complete[slot] = samples
        finally:
            for task in running:
                task.cancel()
            if running:
                await asyncio.wait(running)
        result.groups = [complete[slot] for slot in sorted(complete)]
        result.seconds = time.monotonic() - started
        return result

    async def evaluation(
        self, rollout_id: int, prompts: Sequence[Prompt], samples_each: int, report: Report
    ) -> RolloutResult:
        """`samples_each` trajectories of every prompt, a group each; discarded ones stay in it, unscored."""
        result, started = RolloutResult(), time.monotonic()
        pairs = [(g, p) for g, p in enumerate(prompts) for _ in range(samples_each)]
        room, ended = self._config.max_concurrent, 0
        gate = asyncio.Semaphore(room)

        async def one(group: int, index: int, prompt: Prompt) -> Sample:
            nonlocal ended
            async with gate:
                session = self._open(rollout_id, index, kind="eval")
                sample = await self._trajectory(rollout_id, group, index, prompt, session, result, evaluation=True)
            ended += 1
            lost = result.discarded.total()
            report(ended - lost, len(pairs), lost)
            return sample

        # In lock step a batch waits for every open session: they are opened in waves that all fit in at once.
        wave = room if self._config.deterministic else len(pairs)
        samples: list[Sample] = []
        for begin in range(0, len(pairs), wave):
            part = pairs[begin : begin + wave]
            samples += await _together([one(g, begin + n, p) for n, (g, p) in enumerate(part)])
        result.groups = [samples[n : n + samples_each] for n in range(0, len(samples), samples_each)]
        result.seconds = time.monotonic() - started
        return result

    def next_group(self, prompts: PromptStream) -> StartedGroup:
        """Take a prompt, and the next indices for its group."""
        position, counters = prompts.position, self.counters
        prompts.take()
        group = StartedGroup(counters.group, counters.sample, position)
        counters.group += 1
        counters.sample += self._config.n_samples_per_prompt
        return group

    def start_group(
        self,
        rollout_id: int | None,
        prompt: Prompt,
        group: StartedGroup,
        result: RolloutResult,
        one_ended: Callable[[], None],
    ) -> asyncio.Task[list[Sample]]:
        """The samples of one prompt; `rollout_id` None where it is not known yet which rollout they will be in."""
        # The sessions are opened here, before anything can wait: in a fixed order.
        opened = [self._open(rollout_id, group.first + k) for k in range(self._config.n_samples_per_prompt)]
        work = self._group(rollout_id, prompt, group.group, group.first, opened, result, one_ended)
        return asyncio.create_task(work, name=f"group-{group.group}")

    def _open(self, rollout_id: int | None, index: int, kind: str = "train") -> Session:
        place = "" if rollout_id is None else f"{rollout_id:07d}-"
        name = f"{kind}-{place}{index:09d}"
        return self._engine.sessions.create(seed=f"{self._config.seed}/{name}", name=name)

    async def _group(
        self,
        rollout_id: int | None,
        prompt: Prompt,
        group: int,
        first: int,
        opened: Sequence[Session],
        result: RolloutResult,
        one_ended: Callable[[], None],
    ) -> list[Sample]:
        async def one(k: int, session: Session) -> Sample:
            sample = await self._trajectory(rollout_id, group, first + k, prompt, session, result)
            one_ended()
            return sample

        return await _together([one(k, session) for k, session in enumerate(opened)])

    async def _trajectory(
        self,
        rollout_id: int | None,
        group: int,
        index: int,
        prompt: Prompt,
        session: Session,
        result: RolloutResult,
        *,
        evaluation: bool = False,
    ) -> Sample:
        engine, config, started = self._engine, self._config, time.monotonic()
        outcome = discarded("Aborted", reason="the trajectory was cancelled")
        try:
            answer = await swe_agent_function.run(
                base_url=f"{engine.server.url}/sessions/{session.id}",
                prompt=prompt.prompt,
                request_kwargs={"temperature": config.temperature, "max_tokens": config.rollout_max_response_len},
                metadata={
                    **prompt.metadata,
                    "max_seq_len": config.max_seq_len,
                    "session_server_id": f"{engine.server.host}:{engine.server.port}",
                    "session_server_instance_id": engine.instance_id,
                },
            )
            # To the agent a dead sampler is an endpoint's failure like any other; the run need not try it again.
            engine.batcher.require_alive()
            outcome = Outcome(**answer)
            if not session.turns and not outcome.discard:
                outcome = discarded("NeverRan", reason="the session recorded no model call")
        finally:
            engine.sessions.close(session.id)
            line = outcome_line(
                outcome,
                seconds=time.monotonic() - started,
                group_index=group,
                index=index,
                instance_id=prompt.instance_id,
                rollout_id=rollout_id,
                evaluation=evaluation,
            )
            self._outcomes.append(line)
        sample = make_sample(
            group_index=group,
            index=index,
            prompt=prompt.prompt,
            metadata=dict(prompt.metadata),
            tokens=session.tokens,
            response_length=session.response_length,
            response=engine.tokenizer.decode(session.tokens[session.prompt_length :]),
            loss_mask=session.loss_mask,
            rollout_log_probs=session.log_probs,
            weight_versions=session.weight_versions,
            truncated=session.finish_reason == "length" or outcome.exit_status in CUT_SHORT,
            outcome=outcome,
        )
        result.messages[index] = session.messages
        if outcome.discard:
            result.discarded[outcome.exit_status] += 1
        else:
            sample["reward"] = await generate.reward_func(None, sample)
        self._discards.record(outcome)
        return sample


async def _together[T](work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """All results in order; the first error ends the others and is raised as itself."""
    try:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(w) for w in work]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from errors
    return [task.result() for task in running]

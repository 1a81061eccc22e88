"""The local engine's training run, from a resolved configuration to an exit code.

Synchronous GRPO: collect a rollout with the current weights, update on it, publish the new weights, write what
happened to disk. Left out against Miles: several devices, several nodes, asynchronous rollouts.
"""

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import Generator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import asdict

import generate
from local_engine import checkpoint
from local_engine.agent_server_process import AgentServerFailed, AgentServerProcess
from local_engine.batcher import SamplingFailed
from local_engine.checkpoint import CheckpointError, CheckpointNotWritten
from local_engine.config import LocalRunConfig
from local_engine.data import PromptStream, RunData, prepare_data
from local_engine.engine import Engine
from local_engine.interrupt import Interrupt
from local_engine.machine import MachineError, choose_machine
from local_engine.plan_rows import plan_rows, shown_config, shown_path
from local_engine.pretrained import CheckpointNotUsable
from local_engine.progress import RunProgress, StepRow
from local_engine.rollout import Collector, RolloutResult
from local_engine.run_files import RunFiles
from local_engine.run_state import RunState, capture, fingerprint, restore
from local_engine.training_data import make_train_batch, train_dump
from local_engine.wandb_log import WandbLog
from miles_data.findings import DataError
from tasks.folder import TaskFolderError
from trajectory.discards import ConsecutiveDiscards, TooManyDiscards
from trajectory.outcomes_file import OutcomesFile

DONE, FAILED, CANNOT_WORK = 0, 1, 2
MOVING = 3  # rollouts in the moving mean


def run(config: LocalRunConfig) -> int:
    """Run to the end; the exit code says how it ended. What is expected to go wrong is printed, not raised."""
    with RunProgress(config.num_rollout) as progress, _environment(config):
        try:
            return asyncio.run(_run(config, progress))
        except (MachineError, CheckpointNotUsable, CheckpointError, DataError, TaskFolderError) as error:
            progress.error(str(error))
            return CANNOT_WORK
        except (TooManyDiscards, AgentServerFailed, SamplingFailed, FloatingPointError) as error:
            progress.error(str(error))
            return FAILED


async def _run(config: LocalRunConfig, progress: RunProgress) -> int:
    progress.phase("preparing tasks and data")
    data = prepare_data(config)
    machine = choose_machine(config)
    progress.phase("loading the model")
    engine = Engine(config, machine)
    state, stream = restore(config, engine, data)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(engine)
        if config.agent_server_url is None and data.tasks_dir is not None:
            progress.phase("starting the agent server")
            server = await stack.enter_async_context(
                AgentServerProcess(
                    tasks_dir=data.tasks_dir,
                    work_dir=config.save_dir / "agent_server",
                    max_concurrent=config.max_concurrent,
                    agent_timeout=config.agent_timeout,
                    agent_options={"max_turns": config.max_turns, **config.agent_options},
                    warn=progress.warning,
                )
            )
            os.environ["AGENT_SERVER_URL"] = server.url
            os.environ["AGENT_SERVER_TOKEN_FILE"] = str(server.token_file)
        progress.plan(plan_rows(config, data, machine, engine.policy, state))
        log = WandbLog(
            config.wandb,
            run_id=config.run_id,
            folder=config.save_dir,
            run_config=shown_config(config),
            warn=progress.warning,
        )
        code = FAILED
        try:
            code = await LocalRun(config, data, engine, state, stream, progress, log).run()
        finally:
            log.finish(code)
        return code


class LocalRun:
    """The steps of one run."""

    def __init__(
        self,
        config: LocalRunConfig,
        data: RunData,
        engine: Engine,
        state: RunState,
        stream: PromptStream,
        progress: RunProgress,
        log: WandbLog,
    ) -> None:
        self.config = config
        self.data = data
        self.engine = engine
        self.state = state
        self.stream = stream
        self.progress = progress
        self.log = log
        self.files = RunFiles(config.save_dir, config.traces_dir, progress.warning)
        self.collector = Collector(
            engine,
            OutcomesFile(config.traces_dir),
            ConsecutiveDiscards(config.max_consecutive_discards),
            state.counters,
        )
        self.interrupt = Interrupt(lambda: progress.phase("stopping: saving what is done"))
        self._marks = fingerprint(config, data)
        self._started = time.monotonic()
        self._saved_after = state.done
        self._next = (stream.position, state.counters.copy())
        self._steps_began = (self._started, state.done)  # when the first step of this process began, and at which

    async def run(self) -> int:
        """All remaining rollouts; Ctrl-C and SIGTERM save and stop."""
        with self.interrupt.signals():
            try:
                await self._steps()
            except asyncio.CancelledError:
                if self.interrupt.asked is None:
                    raise
                return self._stopped()
        return self._finished()

    async def _steps(self) -> None:
        config, state = self.config, self.state
        await self.engine.publish_weights(state.done)
        if not state.heldout:
            await self._evaluate()
        self._steps_began = (time.monotonic(), state.done)
        while state.done < config.num_rollout:
            self.interrupt.check()
            await self._step()
            last = state.done == config.num_rollout
            if last or (config.eval_interval and state.done % config.eval_interval == 0):
                await self._evaluate()
            if last or state.done % config.save_interval == 0:
                self._save()

    async def _step(self) -> None:
        config, state, rollout_id = self.config, self.state, self.state.done
        began = time.monotonic()
        self.progress.step_started(rollout_id)
        result = await self.interrupt.cancellable(self.collector.rollout(rollout_id, self.stream, self.progress.trials))
        batch = make_train_batch(result.groups)
        training = 0.0
        metrics: dict[str, float] = {}
        if config.mode == "normal":
            self.progress.phase("training")
            mark = time.monotonic()
            updates = config.rollout_batch_size * config.n_samples_per_prompt // config.global_batch_size
            trained = await self.engine.compute(
                lambda: self.engine.trainer.train(batch.groups, updates), self.engine.machine.training_threads
            )
            training = time.monotonic() - mark
            metrics = {name: float(value) for name, value in asdict(trained).items()}
        state.done += 1
        self._next = (self.stream.position, state.counters.copy())
        if config.mode == "normal":
            await self.engine.publish_weights(state.done)
        self.files.rollout(rollout_id, result, train_dump(batch) if config.mode == "normal" else None)
        row = self._row(rollout_id, result, batch.with_signal, training, time.monotonic() - began, metrics)
        self._record(row, result, metrics)

    def _row(
        self,
        rollout_id: int,
        result: RolloutResult,
        with_signal: int,
        training: float,
        total: float,
        metrics: dict[str, float],
    ) -> StepRow:
        samples = result.samples
        mean = sum(float(s["reward"]) for s in samples) / len(samples)
        earlier = [float(m["reward_mean"]) for m in self.state.metrics[-(MOVING - 1) :]]
        tokens = sum(sum(s["loss_mask"]) for s in samples)
        heldout = next((success for place, success in self.state.heldout if place == rollout_id), None)
        return StepRow(
            rollout_id=rollout_id,
            reward_mean=mean,
            reward_moving=(sum(earlier) + mean) / (len(earlier) + 1),
            heldout=heldout,
            discarded=result.discarded.total(),
            groups=len(result.groups),
            groups_with_signal=with_signal,
            truncated=sum(s["status"] == "truncated" for s in samples),
            tokens=tokens,
            tokens_per_second=tokens / result.seconds,
            rollout_seconds=result.seconds,
            train_seconds=training,
            other_seconds=total - result.seconds - training,
            eta_seconds=self._seconds_left(),
            kl=metrics.get("kl") if self.config.kl_loss_coef else None,
            clip_fraction=metrics.get("clip_fraction"),
            grad_norm=metrics.get("grad_norm"),
        )

    def _seconds_left(self) -> float:
        """Of the rollouts still to come, when they take as long as those of this process so far."""
        began, before = self._steps_began
        done = self.state.done
        return (time.monotonic() - began) / (done - before) * (self.config.num_rollout - done)

    def _record(self, row: StepRow, result: RolloutResult, metrics: dict[str, float]) -> None:
        self.progress.step_finished(row)
        seconds = {
            "rollout": row.rollout_seconds,
            "train": row.train_seconds,
            "other": row.other_seconds,
            "since_start": time.monotonic() - self._started,
        }
        self.state.metrics.append(
            {
                "rollout_id": row.rollout_id,
                "reward_mean": row.reward_mean,
                "reward_moving": row.reward_moving,
                "discarded": row.discarded,
                "groups_with_signal": row.groups_with_signal,
                "truncated": row.truncated,
                "tokens": row.tokens,
                **{f"train_{name}": value for name, value in metrics.items()},
                "seconds": seconds,
            }
        )
        trained = {f"train/{name}": value for name, value in metrics.items()}
        self.log.log(row.rollout_id, row.metrics() | trained | generate.aggregate_agent_metrics(result.groups))
        self.files.metrics(self.state)

    async def _evaluate(self) -> None:
        config, state = self.config, self.state
        if not self.data.heldout or not config.eval_samples or (state.heldout and state.heldout[-1][0] == state.done):
            return
        self.progress.phase("evaluating on held-out instances")
        result = await self.interrupt.cancellable(
            self.collector.evaluation(state.done, self.data.heldout, config.eval_samples, self.progress.trials)
        )
        families: defaultdict[str, list[bool]] = defaultdict(list)
        for sample in result.samples:
            if sample["status"] != "aborted":
                families[str(sample["metadata"].get("family", "all"))].append(float(sample["reward"]) >= 1.0)
        if not families:
            self.progress.warning(f"every trial of the evaluation after {state.done} rollouts was discarded")
            return
        success = sum(map(sum, families.values())) / sum(map(len, families.values()))
        state.heldout.append((state.done, success))
        self.progress.evaluation(
            state.done, success, {name: sum(values) / len(values) for name, values in sorted(families.items())}
        )
        self.log.log(state.done, {"eval/heldout_success": success})
        self.files.metrics(state)
        self.files.evaluation(state.done, result)

    def _save(self) -> None:
        if self.config.mode != "normal" or self._saved_after == self.state.done:
            return
        self.progress.phase("saving a checkpoint")
        # An unfinished rollout is collected again after a resume: its prompts and indices are given back.
        position, counters = self._next
        try:
            state = capture(self.engine, position, counters, self.state, self._marks)
            checkpoint.save(self.config.save_dir, self.state.done - 1, state, self.engine.policy.save_adapter)
            self._saved_after = self.state.done
        except CheckpointNotWritten as error:
            self.progress.warning(str(error))

    def _finished(self) -> int:
        state, config = self.state, self.config
        rows: list[tuple[str, str]] = []
        if len(state.heldout) > 1:
            (_, before), (_, after) = state.heldout[0], state.heldout[-1]
            rows.append(("held-out success", f"{before:.3f} before, {after:.3f} after"))
        if state.metrics:
            rows.append(("reward", f"{state.metrics[-1]['reward_moving']:.3f}, mean of the last {MOVING} rollouts"))
            rows.append(("reward curve", str(shown_path(self.files.reward_curve))))
        rows.append(("dumps", str(shown_path(config.traces_dir))))
        code = DONE
        if config.mode == "normal":
            if self._saved_after != state.done:
                rows.append(("checkpoint", "not written, see the warning above; free space and --resume"))
                code = FAILED
            try:
                model = shown_path(self.files.model(self.engine.policy, self.engine.tokenizer))
                rows.append(("trained model", str(model)))
                rows.append(("talk to it", f"scripts/uv run python -m local_engine.chat {model}"))
            except OSError as error:
                rows.append(("trained model", f"not written: {error.strerror or error}"))
                code = FAILED
        self.progress.summary(rows)
        return code

    def _stopped(self) -> int:
        self._save()
        config, done = self.config, self.state.done
        rows = [("stopped", f"{done} of {config.num_rollout} rollouts are done")]
        if done and self._saved_after == done and config.mode == "normal":
            rows.append(("go on", f"the same command with --save-dir {shown_path(config.save_dir)} --resume"))
        self.progress.summary(rows)
        return self.interrupt.exit_code


@contextmanager
def _environment(config: LocalRunConfig) -> Generator[None]:
    """The agent function reads its settings from the environment, as in a Miles worker; it is put back afterwards."""
    changed = {"AGENT_MODEL_NAME": config.agent_model_name, **config.extra_env}
    if config.agent_server_url is not None:
        changed["AGENT_SERVER_URL"] = config.agent_server_url
    # Settings of a cluster that a shell may still hold: the session server is on loopback here, and a lock step that
    # may not open all its connections never fills.
    foreign = {"MILES_ROUTER_EXTERNAL_HOST"}
    if config.deterministic:
        foreign.add("AGENT_SERVER_MAX_CONNECTIONS")
    touched = {*changed, *foreign, "AGENT_SERVER_URL", "AGENT_SERVER_TOKEN_FILE"}
    before = {name: os.environ.get(name) for name in touched}
    for name in foreign - changed.keys():
        os.environ.pop(name, None)
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

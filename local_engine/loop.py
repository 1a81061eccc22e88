"""The local engine's training run, from a resolved configuration to an exit code.

Synchronous GRPO: collect a rollout with the current weights, update on it, publish the new weights, write what
happened to disk. Left out against Miles: several devices, several nodes, asynchronous rollouts.
"""

import asyncio
import json
import os
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import generate
from local_engine import checkpoint
from local_engine.agent_server_process import AgentServerFailed, AgentServerProcess
from local_engine.atomic_file import atomic_file
from local_engine.checkpoint import CheckpointError, CheckpointNotWritten
from local_engine.config import LocalRunConfig
from local_engine.data import PromptStream, RunData, prepare_data
from local_engine.dumps import DumpNotWritten, Dumps
from local_engine.engine import Engine
from local_engine.machine import MachineError, choose_machine
from local_engine.plot import reward_png
from local_engine.pretrained import CheckpointNotUsable
from local_engine.progress import RunProgress, StepRow
from local_engine.rollout import Collector, RolloutResult
from local_engine.run_state import RunState, capture, fingerprint, restore
from local_engine.training_data import make_train_batch, train_dump
from local_engine.wandb_log import WandbLog
from miles_data.findings import DataError
from tasks.folder import TaskFolderError
from trajectory.discards import ConsecutiveDiscards, TooManyDiscards
from trajectory.outcomes_file import OutcomesFile

DONE, FAILED, CANNOT_WORK, STOPPED = 0, 1, 2, 130
MOVING = 3  # rollouts in the moving mean


def run(config: LocalRunConfig) -> int:
    """Run to the end; the exit code of DESIGN's table. Prints what a person needs to know, raises nothing expected."""
    with RunProgress(config.num_rollout) as progress, _environment(config):
        try:
            return asyncio.run(_run(config, progress))
        except (MachineError, CheckpointNotUsable, CheckpointError, DataError, TaskFolderError) as error:
            progress.error(str(error))
            return CANNOT_WORK
        except (TooManyDiscards, AgentServerFailed, FloatingPointError, CheckpointNotWritten) as error:
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
        if config.agent_server_url is None:
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
        progress.plan(_plan_rows(config, data, engine, state))
        log = WandbLog(
            config.wandb,
            run_id=config.run_id,
            folder=config.save_dir,
            run_config=_shown_config(config),
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
        self.dumps = Dumps(config.traces_dir)
        self.collector = Collector(
            engine,
            OutcomesFile(config.traces_dir),
            ConsecutiveDiscards(config.max_consecutive_discards),
            state.counters,
        )
        self.marks = fingerprint(config, data)
        self.started = time.monotonic()
        self.saved_after = state.done
        self._position = stream.position
        self._counters = (state.counters.group, state.counters.sample)
        self._stop_asked: int | None = None
        self._interruptible: asyncio.Task[Any] | None = None

    async def run(self) -> int:
        """All remaining rollouts; Ctrl-C and SIGTERM save and stop."""
        with self._signals():
            try:
                await self._steps()
            except asyncio.CancelledError:
                if self._stop_asked is None:
                    raise
                return self._stopped()
        return self._finished()

    async def _steps(self) -> None:
        config, state = self.config, self.state
        first = state.done
        await self.engine.publish_weights(first)
        if not state.heldout:
            await self._evaluate()
        loop_started, rollouts_before = time.monotonic(), state.done
        while state.done < config.num_rollout:
            self._check_stop()
            await self._step()
            spent = time.monotonic() - loop_started
            self._eta = spent / (state.done - rollouts_before) * (config.num_rollout - state.done)
            due = config.eval_interval and state.done % config.eval_interval == 0
            if state.done == config.num_rollout or due:
                await self._evaluate()
            if state.done % config.save_interval == 0 or state.done == config.num_rollout:
                self._save()

    _eta: float | None = None

    async def _step(self) -> None:
        config, state, rollout_id = self.config, self.state, self.state.done
        began = time.monotonic()
        self.progress.step_started(rollout_id)
        result = await self._cancellable(self.collector.rollout(rollout_id, self.stream, self.progress.trials))
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
            metrics = {k: float(v) for k, v in asdict(trained).items() if isinstance(v, float | int)}
        state.done += 1
        self._position = self.stream.position
        self._counters = (state.counters.group, state.counters.sample)
        self.progress.phase("publishing weights")
        if config.mode == "normal":
            await self.engine.publish_weights(state.done)
        self._dump(rollout_id, result, train_dump(batch) if config.mode == "normal" else None)
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
        rewards = [float(s["reward"]) for s in samples]
        mean = sum(rewards) / len(rewards)
        earlier = [float(m["reward_mean"]) for m in self.state.metrics[-(MOVING - 1) :]]
        tokens = sum(sum(s["loss_mask"]) for s in samples)
        return StepRow(
            rollout_id=rollout_id,
            reward_mean=mean,
            reward_moving=(sum(earlier) + mean) / (len(earlier) + 1),
            heldout=None,
            discarded=result.discarded.total(),
            groups=len(result.groups),
            groups_with_signal=with_signal,
            truncated=sum(s["status"] == "truncated" for s in samples),
            tokens=tokens,
            tokens_per_second=tokens / result.seconds,
            rollout_seconds=result.seconds,
            train_seconds=training,
            other_seconds=total - result.seconds - training,
            eta_seconds=self._eta,
            kl=metrics.get("kl") if self.config.kl_loss_coef else None,
            clip_fraction=metrics.get("clip_fraction"),
            grad_norm=metrics.get("grad_norm"),
        )

    def _record(self, row: StepRow, result: RolloutResult, metrics: dict[str, float]) -> None:
        self.progress.step_finished(row)
        entry = {
            "rollout_id": row.rollout_id,
            "reward_mean": row.reward_mean,
            "reward_moving": row.reward_moving,
            "discarded": row.discarded,
            "groups_with_signal": row.groups_with_signal,
            "truncated": row.truncated,
            "tokens": row.tokens,
            **{f"train_{k}": v for k, v in metrics.items()},
            "seconds": {
                "rollout": row.rollout_seconds,
                "train": row.train_seconds,
                "other": row.other_seconds,
                "since_start": time.monotonic() - self.started,
            },
        }
        self.state.metrics.append(entry)
        agent = generate.aggregate_agent_metrics(result.groups)
        logged = row.metrics() | {f"train/{k}": v for k, v in metrics.items()} | agent
        self.log.log(row.rollout_id, logged)
        self._write_metrics()

    async def _evaluate(self) -> None:
        config, state = self.config, self.state
        if not self.data.heldout or config.eval_samples < 1:
            return
        if state.heldout and state.heldout[-1][0] == state.done:
            return
        self.progress.phase("evaluating on held-out instances")
        result = await self._cancellable(
            self.collector.evaluation(state.done, self.data.heldout, config.eval_samples, self.progress.trials)
        )
        scored = [s for s in result.samples if s["status"] != "aborted"]
        if not scored:
            self.progress.warning(f"every trial of the evaluation after {state.done} rollouts was discarded")
            return
        families: defaultdict[str, list[float]] = defaultdict(list)
        for sample in scored:
            families[str(sample["metadata"].get("family", "all"))].append(float(sample["reward"] >= 1.0))
        success = sum(map(sum, families.values())) / len(scored)
        state.heldout.append((state.done, success))
        per_family = {name: sum(values) / len(values) for name, values in sorted(families.items())}
        self.progress.evaluation(state.done, success, per_family)
        self.log.log(state.done, {"eval/heldout_success": success})
        self._write_metrics()
        try:
            self.dumps.evaluation(state.done, result.samples)
        except DumpNotWritten as error:
            self.progress.warning(str(error))

    def _dump(self, rollout_id: int, result: RolloutResult, trained: dict[str, list[Any]] | None) -> None:
        """A full disk costs the dumps of this step, said loudly, and not the run."""
        lines = [
            {
                "rollout_id": rollout_id,
                "group_index": s["group_index"],
                "index": s["index"],
                "instance_id": s["metadata"]["instance_id"],
                "reward": s["reward"],
                "exit_status": s["metadata"]["exit_status"],
                "messages": result.messages[s["index"]],
                "eval_report": s["metadata"]["eval_report"],
            }
            for s in result.samples
        ]
        writers = [
            lambda: self.dumps.rollout(rollout_id, result.samples, {"discarded": dict(result.discarded)}),
            lambda: self.dumps.trajectory(rollout_id, lines),
        ]
        if trained is not None:
            writers.append(lambda: self.dumps.train(rollout_id, 0, trained))
        for write in writers:
            try:
                write()
            except DumpNotWritten as error:
                self.progress.warning(str(error))

    def _write_metrics(self) -> None:
        """metrics.jsonl and reward.png, both complete at any moment."""
        folder = self.config.save_dir
        try:
            with atomic_file(folder / "metrics.jsonl") as file:
                file.write("".join(json.dumps(m) + "\n" for m in self.state.metrics).encode())
            if self.state.metrics:
                reward_png(
                    folder / "reward.png",
                    [int(m["rollout_id"]) for m in self.state.metrics],
                    [float(m["reward_mean"]) for m in self.state.metrics],
                    self.state.heldout,
                )
        except OSError as error:
            self.progress.warning(f"metrics in {folder} were not written: {error.strerror}; the run goes on")

    def _save(self) -> None:
        if self.config.mode != "normal" or self.saved_after == self.state.done:
            return
        self.progress.phase("saving a checkpoint")
        current = self.collector.counters
        running = (current.group, current.sample)
        # An unfinished rollout is collected again after a resume: its prompts and indices are given back.
        current.group, current.sample = self._counters
        try:
            state = capture(self.engine, self._position, self.state, self.marks)
            checkpoint.save(self.config.save_dir, self.state.done - 1, state, self.engine.policy.save_adapter)
            self.saved_after = self.state.done
        except CheckpointNotWritten as error:
            self.progress.warning(str(error))
        finally:
            current.group, current.sample = running

    def _finished(self) -> int:
        rows: list[tuple[str, str]] = []
        state, config = self.state, self.config
        if len(state.heldout) > 1:
            (_, before), (_, after) = state.heldout[0], state.heldout[-1]
            rows.append(("held-out success", f"{before:.3f} before, {after:.3f} after"))
        if state.metrics:
            last = state.metrics[-1]
            rows.append(("reward", f"{last['reward_moving']:.3f}, mean of the last {MOVING} rollouts"))
            rows.append(("reward curve", str(config.save_dir / "reward.png")))
        rows.append(("dumps", str(config.traces_dir)))
        code = DONE
        if config.mode == "normal":
            if self.saved_after != state.done:
                rows.append(("checkpoint", "not written: see the warning above"))
                code = FAILED
            try:
                model = self._export()
                rows.append(("trained model", str(model)))
                rows.append(("talk to it", f"uv run python -m local_engine.chat {_relative(model)}"))
            except OSError as error:
                rows.append(("trained model", f"not written: {error.strerror or error}"))
                code = FAILED
        self.progress.summary(rows)
        return code

    def _export(self) -> Path:
        """The trained model as an ordinary Hugging Face folder, replaced as a whole."""
        import shutil

        target = self.config.save_dir / "model"
        building = target.with_name(f"model.tmp-{os.getpid()}")
        shutil.rmtree(building, ignore_errors=True)
        try:
            self.engine.policy.save_merged(building, self.engine.tokenizer)
            shutil.rmtree(target, ignore_errors=True)
            building.rename(target)
        finally:
            shutil.rmtree(building, ignore_errors=True)
        return target

    def _stopped(self) -> int:
        self._save()
        config = self.config
        rows = [("stopped", f"{self.state.done} of {config.num_rollout} rollouts are done")]
        if self.saved_after == self.state.done and self.state.done:
            rows.append(("go on with", f"the same command and --save-dir {_relative(config.save_dir)} --resume"))
        self.progress.summary(rows)
        return STOPPED if self._stop_asked == signal.SIGINT else 128 + int(self._stop_asked or 0)

    async def _cancellable[T](self, work: Any) -> T:
        self._check_stop()
        task: asyncio.Task[T] = asyncio.ensure_future(work)
        self._interruptible = task
        try:
            return await task
        finally:
            self._interruptible = None
            task.cancel()

    def _check_stop(self) -> None:
        if self._stop_asked is not None:
            raise asyncio.CancelledError

    @contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()

        def ask(number: int) -> None:
            self._stop_asked = number
            self.progress.phase("stopping: saving what is done")
            if self._interruptible is not None:
                self._interruptible.cancel()
            # A second one ends the process the ordinary way.
            loop.remove_signal_handler(number)

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, ask, number)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)


@contextmanager
def _environment(config: LocalRunConfig) -> Iterator[None]:
    """The agent function reads its settings from the environment, as in a Miles worker; it is put back afterwards."""
    changed = {"AGENT_MODEL_NAME": config.agent_model_name, **config.extra_env}
    if config.agent_server_url is not None:
        changed["AGENT_SERVER_URL"] = config.agent_server_url
    touched = {*changed, "AGENT_SERVER_URL", "AGENT_SERVER_TOKEN_FILE"}
    before = {name: os.environ.get(name) for name in touched}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _plan_rows(config: LocalRunConfig, data: RunData, engine: Engine, state: RunState) -> list[tuple[str, str]]:
    machine, policy = engine.machine, engine.policy
    trained = sum(p.numel() for p in policy.trainable.values())
    kind = "all weights" if config.full_finetune else f"LoRA rank {config.lora_rank}"
    trials = config.rollout_batch_size * config.n_samples_per_prompt
    rows = [
        ("model", f"{policy.checkpoint}; {kind}, {trained / 1e6:.1f} M trained parameters"),
        ("machine", f"{machine.device}, {str(machine.dtype).removeprefix('torch.')} ({machine.why}), "
         f"{machine.training_threads} threads training, {machine.sampling_threads} sampling"),
        ("data", f"{len(data.train)} training tasks, {len(data.heldout)} held-out tasks in {data.tasks_dir}"),
        ("a rollout", f"{config.rollout_batch_size} prompts x {config.n_samples_per_prompt} samples = {trials} trials, "
         f"up to {config.max_turns} turns of {config.rollout_max_response_len} tokens"),
        ("rollouts", f"{config.num_rollout}, checkpoint every {config.save_interval}"
         + (f"; {state.done} done, {config.num_rollout - state.done} to go" if state.done else "")),
        ("files", f"{config.save_dir} (checkpoints, metrics.jsonl, reward.png, model/)"),
        ("dumps", str(config.traces_dir)),
    ]  # fmt: skip
    if config.agent_server_url:
        rows.insert(3, ("agent server", config.agent_server_url))
    return rows


def _shown_config(config: LocalRunConfig) -> dict[str, Any]:
    values = asdict(config)
    values.pop("extra_env")
    return {k: str(v) if isinstance(v, Path) else v for k, v in values.items()}


def _relative(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path

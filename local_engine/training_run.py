"""What the steps of every run share: update, rows and dumps, evaluation, checkpoints, and how a run ends."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from dataclasses import asdict, dataclass

import generate
from local_engine import checkpoint
from local_engine.checkpoint import CheckpointNotWritten
from local_engine.config import LocalRunConfig
from local_engine.data import PromptStream, RunData
from local_engine.engine import Engine
from local_engine.interrupt import Interrupt
from local_engine.plan_rows import shown_path
from local_engine.progress import RunProgress, StepRow
from local_engine.rollout import Collector, RolloutResult
from local_engine.run_files import RunFiles
from local_engine.run_state import DataMark, RunState, capture, fingerprint
from local_engine.training_data import TrainBatch
from local_engine.wandb_log import WandbLog
from trajectory.discards import ConsecutiveDiscards
from trajectory.outcomes_file import OutcomesFile

DONE, FAILED = 0, 1
MOVING = 3  # rollouts in the moving mean


@dataclass(frozen=True)
class RunParts:
    """What a run works with, ready to start."""

    config: LocalRunConfig
    data: RunData
    engine: Engine
    state: RunState
    stream: PromptStream
    progress: RunProgress
    log: WandbLog


class TrainingRun(ABC):
    """The steps of one run; how sampling and training follow each other is a subclass'."""

    def __init__(self, parts: RunParts) -> None:
        self.config = config = parts.config
        self.data = parts.data
        self.engine = parts.engine
        self.state = state = parts.state
        self.stream = stream = parts.stream
        self.progress = progress = parts.progress
        self.log = parts.log
        self.files = RunFiles(config.save_dir, config.traces_dir, progress.warning)
        self.collector = Collector(
            parts.engine,
            OutcomesFile(config.traces_dir),
            ConsecutiveDiscards(config.max_consecutive_discards),
            state.counters,
        )
        self.interrupt = Interrupt(lambda: progress.phase("stopping: saving what is done"))
        self._marks = fingerprint(config, parts.data)
        self._started = time.monotonic()
        self._saved_after = state.done
        self._data_mark = DataMark(stream.position, state.counters.copy(), tuple(state.pending))
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

    @abstractmethod
    async def _step(self) -> None:
        """Sample, update, publish, write to disk."""

    async def _update(self, batch: TrainBatch) -> tuple[float, dict[str, float]]:
        """One rollout's optimizer steps: seconds, and what was measured. Nothing where nothing is to be trained."""
        config = self.config
        if config.mode != "normal":
            return 0.0, {}
        self.progress.phase("training")
        began = time.monotonic()
        updates = config.rollout_batch_size * config.n_samples_per_prompt // config.global_batch_size
        trained = await self.engine.train(lambda: self.engine.trainer.train(batch.groups, updates))
        metrics = {name: float(value) for name, value in asdict(trained).items() if value is not None}
        return time.monotonic() - began, metrics

    async def _publish(self) -> None:
        if self.config.mode == "normal":
            await self.engine.publish_weights(self.state.done)

    def _row(
        self,
        rollout_id: int,
        result: RolloutResult,
        with_signal: int,
        training: float,
        total: float,
        metrics: dict[str, float],
        overlap: float | None = None,
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
            tokens_per_second=tokens / (result.seconds if overlap is None else total),
            rollout_seconds=result.seconds,
            train_seconds=training,
            other_seconds=total - result.seconds - training,
            eta_seconds=self._seconds_left(),
            kl=metrics.get("kl") if self.config.kl_loss_coef else None,
            clip_fraction=metrics.get("clip_fraction"),
            grad_norm=metrics.get("grad_norm"),
            staleness=result.staleness,
            overlap_seconds=overlap,
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
            **({} if row.overlap_seconds is None else {"overlap": row.overlap_seconds}),
        }
        age = {} if row.staleness is None else {"staleness": row.staleness.as_dict()}
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
                **age,
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
        try:
            state = capture(self.engine, self._data_mark, self.state, self._marks)
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
            model, written = self.files.model_rows(self.engine.policy, self.engine.tokenizer)
            rows += model
            code = code if written else FAILED
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

"""Fully asynchronous GRPO: the sampler goes on while the trainer works, so what is trained on comes from older weights.

The weights change between two tokens of the sampler, after each step's update. Which weights a token comes from
depends on the clock, so two runs with one seed differ; the order of the prompts, their indices and each session's
random stream do not. A checkpoint keeps the groups that were started and not trained on: a resumed run samples them
again, with its weights.
"""

import time

from local_engine.producer import GroupProducer
from local_engine.run_state import DataMark
from local_engine.training_data import make_train_batch, train_dump
from local_engine.training_run import RunParts, TrainingRun


class AsynchronousRun(TrainingRun):
    """Sampler and trainer work side by side."""

    def __init__(self, parts: RunParts) -> None:
        super().__init__(parts)
        assert self.config.asynchrony is not None, "of a synchronous run"
        self._producer = GroupProducer(
            self.collector,
            self.stream,
            self.config,
            self.config.asynchrony.max_weight_staleness,
            self.state.pending,
            self.progress.trials,
        )

    async def _steps(self) -> None:
        try:
            await super()._steps()
        finally:
            await self._producer.close()

    async def _evaluate(self) -> None:
        self._producer.pause()
        await super()._evaluate()

    async def _step(self) -> None:
        config, state, rollout_id, engine = self.config, self.state, self.state.done, self.engine
        began = time.monotonic()
        self.progress.step_started(rollout_id)
        self._producer.produce(config.num_rollout - state.done)
        result = await self.interrupt.cancellable(self._producer.take(engine.sampler.version))
        # Before training, as Miles does: the times of the files are all that tells later what took how long.
        self.files.rollout(rollout_id, result)
        batch = make_train_batch(result.groups)
        sampled = engine.batcher.busy_seconds
        training, metrics = await self._update(batch)
        overlap = engine.batcher.busy_seconds - sampled
        state.done += 1
        self._data_mark = DataMark(self.stream.position, state.counters.copy(), tuple(self._producer.pending()))
        await self._publish()
        self._producer.produce(config.num_rollout - state.done)
        if config.mode == "normal":
            self.files.trained(rollout_id, train_dump(batch))
        row = self._row(rollout_id, result, batch.with_signal, training, time.monotonic() - began, metrics, overlap)
        self._record(row, result, metrics)

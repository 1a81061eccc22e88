"""Synchronous GRPO: collect a rollout with the current weights, update on it, publish the new weights."""

import time

from local_engine.run_state import DataMark
from local_engine.training_data import make_train_batch, train_dump
from local_engine.training_run import TrainingRun


class SynchronousRun(TrainingRun):
    """Sampler and trainer take turns."""

    async def _step(self) -> None:
        config, state, rollout_id = self.config, self.state, self.state.done
        began = time.monotonic()
        self.progress.step_started(rollout_id)
        result = await self.interrupt.cancellable(self.collector.rollout(rollout_id, self.stream, self.progress.trials))
        batch = make_train_batch(result.groups)
        training, metrics = await self._update(batch)
        state.done += 1
        self._data_mark = DataMark(self.stream.position, state.counters.copy())
        await self._publish()
        self.files.rollout(rollout_id, result)
        if config.mode == "normal":
            self.files.trained(rollout_id, train_dump(batch))
        row = self._row(rollout_id, result, batch.with_signal, training, time.monotonic() - began, metrics)
        self._record(row, result, metrics)

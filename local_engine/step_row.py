"""One finished rollout in numbers: what the table, the plain log line and W&B show of it."""

from __future__ import annotations

from dataclasses import dataclass

from local_engine.staleness import Staleness


@dataclass(frozen=True)
class StepRow:
    """Counts and means of one rollout and its update; times in seconds."""

    rollout_id: int  # 0-based, as in the names of the dumps
    reward_mean: float  # over every scored trajectory
    reward_moving: float  # mean of this and up to two rollouts before it
    heldout: float | None  # held-out success of the weights that this rollout was sampled with, if measured
    discarded: int  # trajectories lost to infrastructure
    groups: int
    groups_with_signal: int  # groups whose rewards are not all equal
    truncated: int  # trajectories that reached the length limit
    tokens: int  # tokens that the model wrote
    tokens_per_second: float  # of the rollout's wall time; asynchronous: of the step's
    rollout_seconds: float  # asynchronous: that training waited for trajectories
    train_seconds: float
    other_seconds: float  # weight synchronisation, dumps, checkpoint, evaluation
    eta_seconds: float | None  # to the end of the last rollout
    kl: float | None = None  # None where no KL term is used
    clip_fraction: float | None = None  # share of tokens whose ratio left the clip range
    grad_norm: float | None = None  # before clipping
    staleness: Staleness | None = None  # None in a synchronous run
    overlap_seconds: float | None = None  # of training in which the sampler computed as well; asynchronous only

    @property
    def seconds(self) -> float:
        return self.rollout_seconds + self.train_seconds + self.other_seconds

    def metrics(self) -> dict[str, float]:
        """The row under the names it is logged with; what was not measured is absent."""
        values = {
            "rollout/reward_mean": self.reward_mean,
            "rollout/reward_moving": self.reward_moving,
            "rollout/discarded": self.discarded,
            "rollout/groups": self.groups,
            "rollout/groups_with_signal": self.groups_with_signal,
            "rollout/truncated": self.truncated,
            "rollout/tokens": self.tokens,
            "perf/tokens_per_second": self.tokens_per_second,
            "perf/rollout_seconds": self.rollout_seconds,
            "perf/train_seconds": self.train_seconds,
            "perf/other_seconds": self.other_seconds,
            "eval/heldout_success": self.heldout,
            "train/kl": self.kl,
            "train/clip_fraction": self.clip_fraction,
            "train/grad_norm": self.grad_norm,
            "perf/overlap_seconds": self.overlap_seconds,
        }
        if self.staleness is not None:
            values |= {
                "rollout/fully_async/avg_staleness": self.staleness.mean,
                "rollout/fully_async/max_staleness": self.staleness.largest,
                "rollout/fully_async/stale_groups_filtered": self.staleness.dropped_groups,
                "weight_version/mixed_version_ratio": self.staleness.mixed,
            }
        return {name: float(value) for name, value in values.items() if value is not None}

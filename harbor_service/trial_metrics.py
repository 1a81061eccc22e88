"""What `GET /metrics` tells Prometheus."""

from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from harbor_service.trial_desk import Entry
from trajectory.exit_status import STATUSES
from trajectory.outcome import finite_number

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
_SECONDS: Final = (0.1, 0.3, 1, 3, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200)
_REWARDS: Final = (0, 0.25, 0.5, 0.75, 1)  # with one below 0 the client library would leave out the sum
# Agents name their own endings; one time series for each name that a policy could think of would have no end.
_OTHER: Final = "other"


class TrialMetrics:
    """Counts of one server, in a registry of its own; see `bind` for what is read at each scrape."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        # CPU seconds and resident bytes of this process.
        ProcessCollector(registry=self._registry)
        self._finished = Counter(
            "agent_server_trials", "Ended trials by exit status", ["exit_status"], registry=self._registry
        )
        for status in (*STATUSES, _OTHER):
            self._finished.labels(status)
        self._refused = Counter(
            "agent_server_refused", "Calls of /run that started no trial", ["reason"], registry=self._registry
        )
        for reason in ("queue_full", "closing"):
            self._refused.labels(reason)
        self._reward = Histogram(
            "agent_server_reward", "Rewards of scored trials", buckets=_REWARDS, registry=self._registry
        )
        self._queue = self._seconds("queue", "waiting for a free slot")
        self._trial = self._seconds("trial", "from the slot to the end of the sandbox")
        self._model = self._seconds("model", "of a trial spent waiting for the model")
        self._environment = self._seconds("environment", "of a trial spent on its sandbox: build and commands")

    def bind(self, running: Callable[[], float], queued: Callable[[], float], max_concurrent: int) -> None:
        """Say where the numbers of the moment come from."""
        for name, text, read in (
            ("running", "Trials that run", running),
            ("queued", "Trials that wait for a slot", queued),
            ("max_concurrent", "Trials that may run at once", lambda: float(max_concurrent)),
        ):
            Gauge(f"agent_server_{name}", text, registry=self._registry).set_function(read)

    def refused(self, reason: str) -> None:
        """Count a call that was turned away: `queue_full` or `closing`."""
        self._refused.labels(reason).inc()

    def ended(self, entry: Entry) -> None:
        """Count a trial that has left the desk."""
        outcome = entry.outcome
        if outcome is None:
            return
        self._finished.labels(outcome.exit_status if outcome.exit_status in STATUSES else _OTHER).inc()
        self._queue.observe(entry.queue_seconds)
        if entry.started_at is None:
            return
        self._trial.observe(entry.trial_seconds)
        if outcome.reward is not None:
            self._reward.observe(outcome.reward)
        numbers = {name: finite_number(value) for name, value in outcome.agent_metrics.items()}
        if (model := numbers.get("model_seconds")) is not None:
            self._model.observe(model)
        if (build := numbers.get("build_seconds")) is not None:
            self._environment.observe(build + (numbers.get("command_seconds") or 0.0))

    def text(self) -> bytes:
        """Prometheus' text format."""
        return generate_latest(self._registry)

    def _seconds(self, name: str, text: str) -> Histogram:
        return Histogram(f"agent_server_{name}_seconds", f"Seconds {text}", buckets=_SECONDS, registry=self._registry)

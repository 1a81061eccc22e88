"""The end of a run whose infrastructure is gone: too many discards in a row."""

from collections import Counter

from trajectory.outcome import Outcome

# Over-sampling flushes what it does not need at the end of every rollout: no sign of a broken server.
_EXPECTED = frozenset({"Aborted"})
# As swe_agent_function words it: unknown task, and a request that breaks the server's rules. No patience helps.
_REFUSED = ("HTTP 404", "HTTP 422")
_FOREIGN = ("HTTP 405", "HTTP 501")  # a service that knows no POST


class TooManyDiscards(RuntimeError):
    """`limit` trajectories in a row were discarded; the message names the causes and the way out."""


class ConsecutiveDiscards:
    """Counts infrastructure discards in a row.

    A discarded group is refilled for ever, so a dead agent server would otherwise keep a cluster busy without
    training. Aborted trajectories neither count nor break the row; a scored one breaks it.

    Raises ValueError when `limit` is below 1.
    """

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise ValueError(f"the limit of consecutive discards must be 1 or more, got {limit}")
        self.limit = limit
        self.count = 0
        self.exceeded: TooManyDiscards | None = None
        """The error once it was raised; it stays, since trainers may swallow what a single trajectory raises."""
        self._statuses: Counter[str] = Counter()

    def record(self, outcome: Outcome) -> None:
        """Count one outcome; raises TooManyDiscards when it is the `limit`-th discard in a row or a later one."""
        if not outcome.discard:
            self.count = 0
            self._statuses.clear()
            return
        if outcome.exit_status in _EXPECTED:
            return
        self.count += 1
        self._statuses[outcome.exit_status] += 1
        if self.count >= self.limit:
            causes = ", ".join(f"{status} {count}" for status, count in self._statuses.most_common())
            reason = outcome.eval_report.get("reason")
            last = f" Last one: {reason}." if reason else ""
            self.exceeded = TooManyDiscards(
                f"{self.count} trajectories in a row were discarded (limit {self.limit}): {causes}.{last} "
                f"{_way_out(str(reason))}"
            )
            raise self.exceeded


def _way_out(reason: str) -> str:
    if reason.startswith(_REFUSED):
        return (
            "The agent server is there and refuses what it is asked for: correct the tasks (instance_id) or the agent "
            "(agent_name) of the prompts."
        )
    if reason.startswith(_FOREIGN):
        return "What answers at --agent-server-url is no agent server: correct the address."
    return "Check the agent server's log and /health, or raise --max-consecutive-discards."

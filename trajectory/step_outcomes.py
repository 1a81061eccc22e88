"""What became of every trajectory and group of a step, discarded ones included."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from trajectory.outcome import finite_number


class StepOutcomes:
    """Counts lines of the outcomes file from one call of `metrics` to the next.

    Trainers drop discarded groups before their dumps and their own numbers, so those are known from here only. A group
    counts once all its `group_size` trajectories have ended; one that is sampled again counts again. Evaluations do
    not count.
    """

    def __init__(self, group_size: int) -> None:
        self._group_size = group_size
        self._open: dict[int, list[Mapping[str, Any]]] = {}
        self._trajectories = 0
        self._discarded: Counter[str] = Counter()
        self._groups: Counter[str] = Counter()

    def add(self, line: Mapping[str, Any]) -> None:
        """Count one line, see `outcomes_file.outcome_line`."""
        if line.get("evaluation") is True:
            return
        self._trajectories += 1
        if line.get("discard") is True:
            self._discarded[str(line.get("exit_status"))] += 1
        index = line.get("group_index")
        if not isinstance(index, int):
            return
        group = self._open.setdefault(index, [])
        group.append(line)
        if len(group) >= self._group_size:
            del self._open[index]
            for what in _kinds(group):
                self._groups[what] += 1

    def forget_open_groups(self) -> None:
        """Drop groups of which trajectories were cut off before they began; their lines never come."""
        self._open.clear()

    def metrics(self) -> dict[str, float]:
        """The counts since the last call.

        `agent/trajectories`, `agent/discarded`, `agent/never_ran` and `agent/discarded/<status>` are trajectories.
        Groups: `agent/groups/scored`, of them `no_signal` (all rewards equal); `agent/groups/discarded` (something
        failed), of them `never_ran`; `agent/groups/aborted` (only cut short, as over-sampling is).
        """
        counts = {
            "agent/trajectories": self._trajectories,
            "agent/discarded": self._discarded.total(),
            "agent/never_ran": self._discarded["NeverRan"],
        }
        counts |= {f"agent/discarded/{status}": self._discarded[status] for status in sorted(self._discarded)}
        for what in ("scored", "no_signal", "discarded", "never_ran", "aborted"):
            counts[f"agent/groups/{what}"] = self._groups[what]
        self._trajectories = 0
        self._discarded.clear()
        self._groups.clear()
        return {name: float(count) for name, count in counts.items()}


def _kinds(group: list[Mapping[str, Any]]) -> list[str]:
    lost = {str(line.get("exit_status")) for line in group if line.get("discard") is True}
    if not lost:
        rewards = {finite_number(line.get("reward")) for line in group}
        return ["scored", "no_signal"] if len(rewards) == 1 else ["scored"]
    if lost == {"Aborted"}:
        return ["aborted"]
    return ["discarded", "never_ran"] if "NeverRan" in lost else ["discarded"]

"""Trajectories and groups of a step, from the lines of the outcomes file."""

from pathlib import Path
from typing import Any

import pytest

from trajectory.outcome import Outcome, discarded
from trajectory.outcomes_file import FOLDER, OutcomesFile, OutcomesTail, outcome_line
from trajectory.step_outcomes import StepOutcomes


def line(group: int | None, status: str, reward: float | None = None, *, evaluation: bool = False) -> dict[str, Any]:
    outcome = discarded(status) if reward is None else Outcome(reward, status)
    return outcome_line(outcome, seconds=1.0, group_index=group, evaluation=evaluation)


Ending = tuple[Any, ...]
WON: Ending = ("Submitted", 1.0)
LOST: Ending = ("TurnLimitExceeded", 0.0)


@pytest.mark.parametrize(
    ("group", "kinds"),
    [
        ([WON, LOST], {"scored"}),
        ([WON, WON], {"scored", "no_signal"}),
        ([LOST, LOST], {"scored", "no_signal"}),
        ([WON, ("InfraError",)], {"discarded"}),
        ([("NeverRan",), ("Aborted",)], {"discarded", "never_ran"}),
        ([("Aborted",), ("Aborted",)], {"aborted"}),
        ([WON, ("Aborted",)], {"aborted"}),
    ],
)
def test_a_group_is_what_its_trajectories_make_of_it(group: list[Ending], kinds: set[str]) -> None:
    step = StepOutcomes(2)
    for ending in group:
        step.add(line(4, *ending))
    metrics = step.metrics()
    assert {name for name in metrics if name.startswith("agent/groups/") and metrics[name]} == {
        f"agent/groups/{kind}" for kind in kinds
    }
    assert all(metrics[f"agent/groups/{kind}"] == 1.0 for kind in kinds)


def test_a_group_counts_in_the_step_in_which_its_last_trajectory_ends() -> None:
    step = StepOutcomes(2)
    step.add(line(0, *WON))
    first = step.metrics()
    step.add(line(0, *LOST))
    second = step.metrics()
    assert (first["agent/trajectories"], first["agent/groups/scored"]) == (1.0, 0.0)
    assert (second["agent/trajectories"], second["agent/groups/scored"]) == (1.0, 1.0)


def test_a_group_that_is_sampled_again_counts_again() -> None:
    step = StepOutcomes(2)
    endings: list[Ending] = [("InfraError",), WON, WON, LOST]
    for ending in endings:
        step.add(line(7, *ending))
    metrics = step.metrics()
    assert (metrics["agent/groups/discarded"], metrics["agent/groups/scored"]) == (1.0, 1.0)
    assert metrics["agent/discarded"] == metrics["agent/discarded/InfraError"] == 1.0


def test_groups_cut_off_before_they_began_do_not_wait_for_ever() -> None:
    step = StepOutcomes(2)
    step.add(line(0, "Aborted"))
    step.forget_open_groups()
    step.add(line(0, *WON))
    assert not any(step.metrics()[f"agent/groups/{kind}"] for kind in ("scored", "aborted"))


def test_evaluations_and_trajectories_without_a_group_make_no_groups() -> None:
    step = StepOutcomes(1)
    step.add(line(0, *WON, evaluation=True))
    step.add(line(None, *WON))
    metrics = step.metrics()
    assert (metrics["agent/trajectories"], metrics["agent/groups/scored"]) == (1.0, 0.0)


def test_the_tail_takes_each_whole_line_of_every_process_once(tmp_path: Path) -> None:
    mine = OutcomesFile(tmp_path)
    mine.append(line(0, "InfraError"))
    tail = OutcomesTail(tmp_path)
    assert tail.read() == [], "what an earlier start left is not of this run"
    mine.append(line(1, *WON))
    other = tmp_path / FOLDER / "node-b-7.jsonl"
    other.write_bytes(b'{"group_index": 2}\nnot json\n{"group_index"')
    assert sorted(read["group_index"] for read in tail.read()) == [1, 2]
    with other.open("ab") as file:
        file.write(b": 3}\n")
    assert [read["group_index"] for read in tail.read()] == [3]
    assert tail.read() == []

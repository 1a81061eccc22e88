"""Runs side by side: differences at equal rollout, and sentences for what does not compare."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from progress.compare import CannotCompare, compare_runs
from progress.compare_table import print_comparison
from progress.run_report import RunReport, Verdict
from tests.progress.test_plot import run, step


def rising(folder: str, rollouts: int, start: float = 0.0) -> RunReport:
    return run(*(step(n, start + n / 100) for n in range(rollouts)), folder=folder)


def printed(*reports: RunReport, terminal: bool = False) -> str:
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=100, color_system=None, highlight=False)
    print_comparison(compare_runs(reports), console)
    return file.getvalue()


def test_the_others_are_compared_with_the_first_at_equal_rollout() -> None:
    found = compare_runs([rising("a", 3), rising("b", 3, 0.25), rising("c", 3, 0.5)])
    assert found.exit_code == 0
    assert found.common == (0, 1, 2)
    assert found.notes == ()
    value = found.as_dict()
    assert [entry["letter"] for entry in value["runs"]] == ["A", "B", "C"]
    assert value["steps"][2]["values"]["reward_mean"] == pytest.approx([0.02, 0.27, 0.52])
    assert value["steps"][2]["differences"]["reward_mean"] == pytest.approx([0.25, 0.5])
    assert value["means"]["reward_mean"] == pytest.approx([0.01, 0.26, 0.51])
    json.dumps(value, allow_nan=False)


def test_runs_of_unequal_length_are_compared_where_both_have_rollouts() -> None:
    text = printed(rising("a", 30), rising("b", 20))
    assert "note: A has rollouts 0 to 29, B has rollouts 0 to 19: 20 in common" in text
    assert "mean over 20 rollouts in common" in text
    assert "\n     19" in text
    assert "\n     20" not in text


def test_groups_of_another_size_are_said_not_to_compare_runs() -> None:
    larger = [replace(step(n), trajectories=32, groups=4) for n in range(3)]
    text = printed(rising("a", 3), run(*larger, folder="b"))
    assert "note: trajectories in a group: A 4, B 8; shares of groups with signal do not compare" in text
    assert "note: groups in a rollout: A 2, B 4; an equal rollout is not an equal amount of data" in text


def test_a_run_without_data_is_named_and_the_others_are_compared() -> None:
    empty = replace(run(folder="b"), verdict=Verdict.NO_DATA, reason="no dump below b")
    comparison = compare_runs([rising("a", 3), empty, rising("c", 3, 0.5)])
    assert comparison.exit_code == 2
    assert comparison.common == (0, 1, 2)
    assert comparison.notes == ("B has no rollout to compare: no dump below b",)
    assert comparison.as_dict()["steps"][0]["differences"]["reward_mean"] == [None, pytest.approx(0.5)]
    assert "+0.500" in printed(rising("a", 3), empty, rising("c", 3, 0.5))


def test_runs_without_a_rollout_in_common_are_not_compared() -> None:
    comparison = compare_runs([run(step(0), folder="a"), run(step(5), folder="b")])
    assert comparison.exit_code == 1
    assert "no rollout in common: nothing to compare" in printed(run(step(0), folder="a"), run(step(5), folder="b"))


def test_a_run_without_rewards_in_common_is_named() -> None:
    comparison = compare_runs([rising("a", 3), run(*(step(n, None) for n in range(3)), folder="b")])
    assert comparison.notes == ("B has no reward in any rollout in common",)
    assert comparison.means("reward_mean") == [pytest.approx(0.01), None]


def test_means_are_taken_where_all_runs_know_the_value() -> None:
    partly = run(step(0, 0.5), step(1, None), step(2, 0.7), folder="b")
    assert compare_runs([rising("a", 3), partly]).means("reward_mean") == [pytest.approx(0.01), pytest.approx(0.6)]


def test_a_run_of_discards_alone_has_no_group_size_to_differ() -> None:
    failing = run(*(replace(step(n, None), trajectories=0, groups=0) for n in range(3)), folder="b")
    assert compare_runs([rising("a", 3), failing]).notes == ("B has no reward in any rollout in common",)


def test_one_run_with_data_has_nothing_to_be_compared_with() -> None:
    comparison = compare_runs([rising("a", 3), run(folder="b")])
    assert comparison.common == ()
    assert comparison.exit_code == 2


def test_what_a_resume_left_behind_is_not_compared() -> None:
    resumed = run(step(0), step(1), replace(step(2), leftover=True), folder="a")
    assert compare_runs([resumed, rising("b", 3)]).common == (0, 1)


def test_a_number_that_is_none_is_no_number_in_the_comparison() -> None:
    for number in (float("nan"), float("inf"), 1e308):
        value = compare_runs([run(step(0, number), folder="a"), run(step(0, -1e308), folder="b")]).as_dict()
        assert value["steps"][0]["values"]["reward_mean"] == [None, None]
        json.dumps(value, allow_nan=False)


@pytest.mark.parametrize(
    ("folders", "message"),
    [
        (["a"], r"1 folder\(s\) given: compare takes 2 to 7 runs"),
        ([str(n) for n in range(8)], r"8 folder\(s\) given"),
        (["a", "b", "./a"], "a is given twice"),
    ],
)
def test_what_is_no_comparison_is_refused(folders: list[str], message: str) -> None:
    with pytest.raises(CannotCompare, match=message):
        compare_runs([rising(folder, 1) for folder in folders])


def test_a_terminal_shows_the_latest_rollouts_and_a_pipe_all() -> None:
    reports = rising("a", 100), rising("b", 100)
    assert "the last 40 of 100" in printed(*reports, terminal=True)
    lines = printed(*reports).splitlines()
    assert [line.split()[0] for line in lines[-100:]] == [str(n) for n in range(100)]


def test_names_and_reasons_cannot_act_on_the_terminal() -> None:
    hostile = replace(rising("b\x1b]0;x\x07[red]", 1), reason="[bold]\n\x1b[2J")
    text = printed(rising("a", 1), hostile, terminal=True)
    assert "\x1b" not in text
    assert "b\\x1b]0;x\\x07[red]" in text
    assert "[bold] \\x1b[2J" in text


def test_runs_of_the_same_name_are_told_apart_by_their_folders() -> None:
    comparison = compare_runs([rising("x/run/traces", 1), rising("y/run/traces", 1)])
    assert [one.name for one in comparison.runs] == [str(Path("x/run/traces")), str(Path("y/run/traces"))]

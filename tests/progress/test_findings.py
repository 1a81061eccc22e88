"""Each thing that can be wrong with a run is found, named with its rollout and its numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy
import pytest
import torch

from progress.read_run import read_run
from progress.run_report import Finding, Kind, RunReport
from tests.progress.run_on_disk import MINUTE, RunOnDisk, sample


def of(report: RunReport, kind: Kind) -> list[Finding]:
    return [finding for finding in report.findings if finding.kind is kind]


def one_step(disk: RunOnDisk, *samples: object) -> RunReport:
    disk.rollout(0, samples=list(samples))
    return read_run(disk.traces)


def test_a_healthy_step_has_no_finding(disk: RunOnDisk) -> None:
    assert one_step(disk, sample(0, 0.0), sample(1, 1.0)).findings == ()


def test_missing_step_numbers_are_gaps(disk: RunOnDisk) -> None:
    for rollout_id in (3, 4, 7, 8):
        disk.rollout(rollout_id, age=(9 - rollout_id) * MINUTE)
    report = read_run(disk.traces)
    assert [finding.rollout_id for finding in of(report, Kind.GAP)] == [5, 6]
    assert "2 rollouts missing between 4 and 7: 5, 6" in of(report, Kind.GAP)[0].text


def test_a_gap_of_a_million_steps_is_one_finding(disk: RunOnDisk) -> None:
    disk.rollout(0, age=MINUTE)
    disk.rollout(1_000_000)
    (gap,) = of(read_run(disk.traces), Kind.GAP)
    assert gap.rollout_id == 1 and "999999 rollouts missing" in gap.text


def test_a_dump_that_cannot_be_read_is_no_gap(disk: RunOnDisk) -> None:
    for rollout_id in range(3):
        disk.rollout(rollout_id)
    disk.raw("rollout_data/1.pt", b"", age=3600)
    report = read_run(disk.traces)
    assert of(report, Kind.GAP) == []
    (bad,) = of(report, Kind.UNREADABLE)
    assert (bad.rollout_id, bad.text) == (1, "rollout_data/1.pt is skipped: it is empty")
    assert [step.rollout_id for step in report.steps] == [0, 2]


def test_steps_in_front_of_older_ones_were_rewritten(disk: RunOnDisk) -> None:
    disk.steps(6, age=10 * MINUTE)
    disk.rollout(3, age=MINUTE)
    report = read_run(disk.traces)
    (found,) = of(report, Kind.REWRITTEN)
    assert found.rollout_id == 3
    assert "newer than that of rollout 4" in found.text and "4, 5 left from before" in found.text


def test_outcomes_tell_of_a_resume_that_left_no_step_behind(disk: RunOnDisk) -> None:
    disk.steps(4)
    for attempt, of_attempt in enumerate((range(3), range(1, 4))):
        for rollout_id in of_attempt:
            age = (10 - 5 * attempt - rollout_id) * MINUTE
            lines = disk.ended(rollout_id, {"Submitted": 4}, discard=False, age=age, first=10 * rollout_id)
            lines += disk.ended(rollout_id, {"NeverRan": 1}, discard=True, age=age, first=10 * rollout_id + 5)
            disk.outcomes(lines, file=f"host-{attempt}")
    report = read_run(disk.traces)
    # Rollout 2 was the last of the first attempt: nothing says that its dump had been written.
    assert [finding.rollout_id for finding in of(report, Kind.REWRITTEN)] == [1]
    assert [step.discarded for step in report.steps] == [1, 1, 1, 1]


def test_processes_of_one_rollout_add_up(disk: RunOnDisk) -> None:
    disk.steps(1)
    disk.outcomes(disk.ended(0, {"NeverRan": 2}, discard=True), file="host-1")
    disk.outcomes(disk.ended(0, {"NeverRan": 3}, discard=True, first=50), file="host-2")
    report = read_run(disk.traces)
    assert report.steps[0].discarded == 5
    assert of(report, Kind.REWRITTEN) == []


def test_a_dump_that_an_earlier_look_saw_otherwise_was_rewritten(disk: RunOnDisk) -> None:
    disk.rollout(0, ((0.0, 1.0),), age=MINUTE)
    assert read_run(disk.traces).findings == ()
    disk.rollout(0, ((0.0, 0.5),))
    (found,) = of(read_run(disk.traces), Kind.REWRITTEN)
    assert "an earlier look saw another dump" in found.text
    assert of(read_run(disk.traces), Kind.REWRITTEN) == [found]


def test_a_dump_that_was_half_written_before_was_not_rewritten(disk: RunOnDisk) -> None:
    path = disk.rollout(0)
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    assert len(of(read_run(disk.traces), Kind.UNREADABLE)) == 1
    path.write_bytes(whole)
    assert read_run(disk.traces).findings == ()


def test_equal_rewards_are_no_signal(disk: RunOnDisk) -> None:
    disk.rollout(4, ((0.5, 0.5), (0.0, 0.0)))
    (found,) = of(read_run(disk.traces), Kind.NO_SIGNAL)
    assert found.rollout_id == 4
    assert found.text == "rollout 4: rewards are equal in each of 2 groups, mean 0.25"


@pytest.mark.parametrize(
    "changes",
    [
        {"loss_mask": [0, 0, 0, 0]},
        {"loss_mask": torch.zeros(4, dtype=torch.int32)},
        {"loss_mask": numpy.zeros(4, dtype=numpy.int32)},
        {"loss_mask": [], "rollout_log_probs": [], "response_length": 0},
        {"loss_mask": None, "rollout_log_probs": None, "response_length": 0},
    ],
)
def test_a_sample_without_a_trainable_token_is_named(disk: RunOnDisk, changes: dict[str, Any]) -> None:
    report = one_step(disk, sample(0, 0.0), sample(1, 1.0, **changes))
    (found,) = report.findings
    assert (found.kind, found.rollout_id) == (Kind.NO_TRAINABLE_TOKEN, 0)
    assert "1 of 2 samples" in found.text and "sample 1" in found.text


def test_a_sample_that_was_removed_on_purpose_needs_no_token(disk: RunOnDisk) -> None:
    removed = sample(1, 1.0, loss_mask=[0, 0, 0, 0], remove_sample=True)
    assert one_step(disk, sample(0, 0.0), removed).findings == ()


def test_without_a_mask_every_response_token_is_trained_on(disk: RunOnDisk) -> None:
    assert one_step(disk, sample(0, 0.0), sample(1, 1.0, loss_mask=None)).findings == ()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"loss_mask": [1, 1, 1]}, "3 mask entries for 4 response tokens"),
        ({"loss_mask": torch.ones(5)}, "5 mask entries for 4 response tokens"),
        ({"rollout_log_probs": [-0.1] * 6}, "6 log-probabilities for 4 response tokens"),
    ],
)
def test_a_mask_unlike_the_response_is_named(disk: RunOnDisk, changes: dict[str, Any], said: str) -> None:
    (found,) = one_step(disk, sample(0, 0.0), sample(1, 1.0, **changes)).findings
    assert (found.kind, found.rollout_id) == (Kind.MASK_LENGTH, 0)
    assert said in found.text


@pytest.mark.parametrize("reward", [1.0, 0.0, {"score": 1.0}])
def test_a_reward_on_an_aborted_sample_is_named_and_counts_nowhere(disk: RunOnDisk, reward: object) -> None:
    report = one_step(disk, sample(0, 0.0), sample(1, 0.5), sample(2, reward, status="aborted"))
    (found,) = report.findings
    assert (found.kind, found.rollout_id) == (Kind.REWARD_ON_ABORTED, 0)
    assert report.steps[0].reward_mean == 0.25
    assert report.steps[0].discarded == 1


def test_an_aborted_sample_without_a_reward_is_as_it_should_be(disk: RunOnDisk) -> None:
    assert one_step(disk, sample(0, 0.0), sample(1, 1.0), sample(2, None, status="aborted")).findings == ()


@pytest.mark.parametrize("reward", [math.nan, math.inf, 10**400, None, "1.0", True, [1.0], {"a": 1.0, "b": 0.0}])
def test_what_is_no_reward_is_named_and_left_out(disk: RunOnDisk, reward: object) -> None:
    report = one_step(disk, sample(0, 0.0), sample(1, 1.0), sample(2, reward))
    (found,) = report.findings
    assert found.kind is Kind.UNREADABLE and "1 of 3 samples without a usable reward" in found.text
    assert report.steps[0].reward_mean == 0.5


@pytest.mark.parametrize("reward", [torch.tensor(1.0), numpy.float64(1.0), numpy.float32(1.0), {"score": 1}, 1])
def test_rewards_of_other_libraries_and_in_dicts_count(disk: RunOnDisk, reward: object) -> None:
    report = one_step(disk, sample(0, 0.0), sample(1, reward))
    assert report.findings == ()
    assert (report.steps[0].reward_mean, report.steps[0].solved) == (0.5, 0.5)


def test_the_reward_key_of_the_launch_picks_from_dicts(disk: RunOnDisk) -> None:
    disk.launch(arguments=["--reward-key", "b"])
    report = one_step(disk, sample(0, {"a": 5.0, "b": 0.0}), sample(1, {"a": 5.0, "b": 1.0}))
    assert report.steps[0].reward_mean == 0.5


def test_rewards_near_the_limit_of_floats_are_no_error(disk: RunOnDisk) -> None:
    report = one_step(disk, sample(0, 1e308), sample(1, 1.7e308), sample(2, -1e308))
    assert report.steps[0].reward_std is None


def test_samples_of_one_trajectory_count_once(disk: RunOnDisk) -> None:
    """Context compaction makes several samples of a trajectory: one group, one index, one reward."""
    report = one_step(disk, sample(0, 0.0), sample(1, 1.0), sample(1, 1.0), sample(1, 1.0))
    step = report.steps[0]
    assert (step.trajectories, step.reward_mean, step.tokens, step.turns) == (2, 0.5, 8.0, 2.0)
    assert step.exit_statuses == {"Submitted": 2}


def test_groups_may_differ_in_size_and_lack_an_index(disk: RunOnDisk) -> None:
    loose = [{**sample(0, 1.0), "index": None, "group_index": None} for _ in range(2)]
    report = one_step(disk, sample(0, 0.0), sample(1, 0.0), sample(2, 1.0), sample(3, 1.0, group=1), *loose)
    step = report.steps[0]
    assert (step.trajectories, step.groups, step.groups_with_signal) == (6, 3, 1)


def test_a_dump_without_samples_is_a_step_of_nothing(disk: RunOnDisk) -> None:
    report = one_step(disk)
    step = report.steps[0]
    assert (step.trajectories, step.reward_mean, step.solved, step.tokens, step.groups) == (0, None, None, None, 0)
    assert report.findings == ()


def test_discards_in_the_metadata_count_where_there_are_no_outcomes(disk: RunOnDisk) -> None:
    disk.rollout(0, metadata={"discarded": {"NeverRan": 3, "InfraError": 1}})
    step = read_run(disk.traces).steps[0]
    assert (step.discarded, step.never_ran) == (4, 3 / 8)
    assert step.exit_statuses == {"Submitted": 4, "NeverRan": 3, "InfraError": 1}


def test_a_dump_under_another_number_is_named(disk: RunOnDisk) -> None:
    disk.rollout(0).rename(disk.traces / "rollout_data" / "3.pt")
    disk.file("train_data/3_1.pt", {"rollout_id": 3, "rank": 0, "rollout_data": {}})
    texts = {finding.text for finding in read_run(disk.traces).findings}
    assert "rollout_data/3.pt is skipped: it holds rollout 0, its name says 3" in texts
    assert "train_data/3_1.pt is skipped: it holds rank 0, its name says 1" in texts


def test_leading_zeros_are_read_unless_the_number_is_there_without(disk: RunOnDisk) -> None:
    disk.rollout(5).rename(disk.traces / "rollout_data" / "005.pt")
    report = read_run(disk.traces)
    assert [step.rollout_id for step in report.steps] == [5] and report.findings == ()
    disk.rollout(5)
    (found,) = read_run(disk.traces).findings
    assert "rollout_data/005.pt is skipped: rollout_data/5.pt has the same number" in found.text


def test_a_stray_number_a_billion_away_costs_no_memory(disk: RunOnDisk) -> None:
    disk.rollout(0, age=MINUTE)
    disk.rollout(999_999_999)
    (gap,) = of(read_run(disk.traces), Kind.GAP)
    assert gap.text == "999999998 rollouts missing between 0 and 999999999: 1 to 999999998"


def test_a_dump_newer_than_its_training_was_rewritten(disk: RunOnDisk) -> None:
    disk.steps(6, age=30 * MINUTE)
    disk.rollout(5, age=MINUTE)
    report = read_run(disk.traces)
    (found,) = of(report, Kind.REWRITTEN)
    assert found.rollout_id == 5 and "its train dumps are older than it" in found.text
    assert report.last_trained == 4


def test_lines_of_outcomes_that_are_no_json_are_named(disk: RunOnDisk) -> None:
    disk.steps(2)
    disk.raw("outcomes/host-1.jsonl", b'\x00\xff\n[1]\n{"rollout_id": 2, "exit_st')
    (found,) = of(read_run(disk.traces), Kind.UNREADABLE)
    assert found.text == "outcomes/host-1.jsonl: 2 lines skipped, no JSON object"


def test_what_is_no_file_among_the_conversations_is_named(disk: RunOnDisk) -> None:
    disk.steps(2)
    (disk.traces / "trajectory" / "1.jsonl").mkdir(parents=True)
    (found,) = of(read_run(disk.traces), Kind.UNREADABLE)
    assert found.text == "trajectory/1.jsonl is skipped: it is a folder"

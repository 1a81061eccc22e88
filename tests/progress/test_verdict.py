"""Every verdict, with the numbers in its reason."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from progress.read_run import ReadSettings, read_run
from progress.run_report import Kind, RunReport, Verdict
from tests.progress.run_on_disk import MINUTE, RunOnDisk


def kinds(report: RunReport) -> set[tuple[Kind, int | None]]:
    return {(finding.kind, finding.rollout_id) for finding in report.findings}


def test_steps_that_keep_coming_are_advancing(disk: RunOnDisk) -> None:
    disk.launch(num_rollout=25)
    disk.steps(4, age=3 * MINUTE)
    report = read_run(disk.traces)
    assert report.verdict is Verdict.ADVANCING
    assert report.exit_code == 0
    assert "rollout 3 of 25" in report.reason and "median step 10 min" in report.reason
    assert (report.last_rollout, report.last_trained) == (3, 3)
    assert not report.findings
    (step,) = report.steps[3:]
    assert (step.reward_mean, step.solved, step.groups, step.groups_with_signal) == (0.75, 0.75, 2, 1)
    assert (step.tokens, step.turns, step.truncated, step.discarded, step.never_ran) == (4.0, 2.0, 0, 0, 0.0)
    assert step.training_seconds == 10.0
    assert step.exit_statuses == {"Submitted": 4}


def test_the_save_folder_stands_for_its_traces(disk: RunOnDisk) -> None:
    disk.steps(1)
    for folder in (disk.save, disk.traces, disk.traces / "rollout_data"):
        assert read_run(folder).folder == disk.traces


def test_a_run_without_a_new_dump_for_several_steps_is_stalled(disk: RunOnDisk) -> None:
    disk.steps(4, age=47 * MINUTE)
    report = read_run(disk.traces)
    assert (report.verdict, report.exit_code) == (Verdict.STALLED, 1)
    assert report.reason.startswith("last rollout 3 is 47 min old, median step 10 min")


def test_the_threshold_is_a_multiple_of_the_median_step_with_a_floor(disk: RunOnDisk) -> None:
    disk.steps(4, age=29 * MINUTE)
    assert read_run(disk.traces).verdict is Verdict.ADVANCING
    assert read_run(disk.traces, ReadSettings(stall_factor=2.0)).verdict is Verdict.STALLED
    assert read_run(disk.traces, ReadSettings(stall_factor=2.0, stall_floor=3600.0)).verdict is Verdict.ADVANCING


def test_ranks_that_never_write_are_a_stuck_trainer(disk: RunOnDisk) -> None:
    disk.launch(train_ranks=8)
    disk.steps(3, age=60 * MINUTE, ranks=range(8))
    disk.rollout(3, age=40 * MINUTE)
    disk.train(3, (0, 1, 2, 3, 4, 7), age=39 * MINUTE)
    report = read_run(disk.traces)
    assert report.verdict is Verdict.STALLED
    assert "rollout 3 written, training of it missing ranks 5, 6 of 8: the trainer is stuck" in report.reason
    assert (report.last_rollout, report.last_trained) == (3, 2)
    assert (len(report.steps[3].ranks), report.steps[3].ranks_expected) == (6, 8)


def test_without_a_launch_file_the_largest_set_of_ranks_is_expected(disk: RunOnDisk) -> None:
    disk.steps(3, age=0, ranks=(0, 1))
    disk.rollout(3)
    disk.train(3, (1,))
    report = read_run(disk.traces)
    assert report.verdict is Verdict.ADVANCING
    assert "missing 1 of 2 ranks so far" in report.reason
    assert [step.trained for step in report.steps] == [True, True, True, False]


def test_rollouts_that_go_on_while_training_does_not_are_a_stuck_trainer(disk: RunOnDisk) -> None:
    disk.steps(3, age=200 * MINUTE)
    for rollout_id in range(3, 20):
        disk.rollout(rollout_id, age=(19 - rollout_id) * 10 * MINUTE)
    report = read_run(disk.traces)
    assert report.verdict is Verdict.STALLED
    assert "rollout 3 written, training of it missing rank 0 of 1" in report.reason


def test_a_trainer_that_goes_on_without_some_ranks_is_not_stuck(disk: RunOnDisk) -> None:
    disk.launch(train_ranks=8)
    disk.steps(6, ranks=range(4))
    report = read_run(disk.traces)
    assert report.verdict is Verdict.ADVANCING
    assert report.last_trained is None


def test_a_run_that_trains_nothing_expects_no_rank(disk: RunOnDisk) -> None:
    disk.launch(num_rollout=3, train_ranks=1, arguments=["--debug-rollout-only"])
    for rollout_id in range(3):
        disk.rollout(rollout_id, age=(3 - rollout_id) * MINUTE)
    report = read_run(disk.traces)
    assert report.verdict is Verdict.FINISHED
    assert report.last_trained is None
    assert report.steps[0].ranks_expected == 0


def test_the_last_rollout_trained_is_the_end(disk: RunOnDisk) -> None:
    disk.launch(num_rollout=3)
    disk.steps(3, age=5 * 60 * MINUTE)
    report = read_run(disk.traces)
    assert (report.verdict, report.exit_code) == (Verdict.FINISHED, 0)
    assert "rollout 2 was the last of 3" in report.reason
    assert report.num_rollout == 3


def test_the_last_rollout_is_not_the_end_before_it_is_trained(disk: RunOnDisk) -> None:
    disk.launch(num_rollout=4)
    disk.steps(3, age=12 * MINUTE)
    disk.rollout(3, age=1 * MINUTE)
    assert read_run(disk.traces).verdict is Verdict.ADVANCING


def test_the_number_of_rollouts_can_be_given_where_there_is_no_launch_file(disk: RunOnDisk) -> None:
    disk.steps(3, age=5 * 60 * MINUTE)
    assert read_run(disk.traces).verdict is Verdict.STALLED
    assert read_run(disk.traces, ReadSettings(num_rollout=3)).verdict is Verdict.FINISHED


def test_a_run_whose_every_trial_is_discarded_is_failing_without_a_dump(disk: RunOnDisk) -> None:
    disk.launch()
    disk.outcomes(disk.ended(0, {"ServerUnreachable": 3}, discard=True))
    report = read_run(disk.traces)
    assert (report.verdict, report.exit_code) == (Verdict.FAILING, 1)
    assert "every trial so far is discarded (ServerUnreachable 100% of 3)" in report.reason
    assert report.steps == () and report.last_rollout is None
    assert report.exit_statuses == {"ServerUnreachable": 3}


def test_discards_since_the_last_rollout_are_failing(disk: RunOnDisk) -> None:
    disk.steps(8, age=MINUTE)
    disk.outcomes(disk.ended(7, {"Submitted": 4}, discard=False, age=2 * MINUTE))
    disk.outcomes(disk.ended(8, {"ServerUnreachable": 48, "NeverRan": 2}, discard=True, first=100))
    report = read_run(disk.traces)
    assert report.verdict is Verdict.FAILING
    assert "every trial since rollout 7 is discarded: ServerUnreachable 96%, NeverRan 4% of 50" in report.reason
    assert report.exit_statuses == {"ServerUnreachable": 48, "Submitted": 32, "NeverRan": 2}


def test_one_group_that_fails_first_is_not_yet_failing(disk: RunOnDisk) -> None:
    disk.steps(2, age=MINUTE)
    broken = [{**line, "group_index": 9} for line in disk.ended(2, {"TaskBroken": 8}, discard=True)]
    disk.outcomes(broken)
    report = read_run(disk.traces)
    assert report.verdict is Verdict.ADVANCING
    assert "8 of 8 trials since then discarded" in report.reason


def test_over_sampled_trajectories_that_were_cut_off_are_no_failure(disk: RunOnDisk) -> None:
    disk.steps(2, age=MINUTE)
    disk.outcomes(disk.ended(2, {"Aborted": 40}, discard=True))
    assert read_run(disk.traces).verdict is Verdict.ADVANCING


def test_discards_explain_a_stalled_run(disk: RunOnDisk) -> None:
    disk.steps(4, age=50 * MINUTE)
    disk.outcomes(disk.ended(4, {"SandboxUnavailable": 6}, discard=True))
    disk.outcomes(disk.ended(4, {"Submitted": 4}, discard=False, first=10))
    report = read_run(disk.traces)
    assert report.verdict is Verdict.FAILING
    assert "50 min old" in report.reason and "60% are discarded: SandboxUnavailable 100%" in report.reason


def test_lines_without_a_rollout_count_by_their_time(disk: RunOnDisk) -> None:
    """Fully asynchronous: nobody knows the rollout of a trajectory."""
    disk.steps(3, every=10 * MINUTE, age=MINUTE)
    disk.outcomes(disk.ended(None, {"NeverRan": 1, "Submitted": 7}, discard=False, age=15 * MINUTE))
    disk.outcomes(disk.ended(None, {"ServerTimeout": 2}, discard=True, age=5 * MINUTE, first=20))
    disk.outcomes(disk.ended(None, {"ServerUnreachable": 6}, discard=True, first=30))
    report = read_run(disk.traces)
    assert report.verdict is Verdict.FAILING
    assert "since rollout 2" in report.reason and "ServerUnreachable 100% of 6" in report.reason
    assert [step.discarded for step in report.steps] == [0, 0, 2]
    assert report.steps[1].never_ran == 1 / 8
    assert report.exit_statuses["ServerUnreachable"] == 6


def test_equal_rewards_in_every_group_are_no_signal(disk: RunOnDisk) -> None:
    for rollout_id in range(3):
        disk.rollout(rollout_id, ((1.0, 1.0), (0.0, 0.0)), age=(3 - rollout_id) * MINUTE)
    report = read_run(disk.traces)
    assert (report.verdict, report.exit_code) == (Verdict.NO_SIGNAL, 1)
    assert "6 groups of rollouts 0 to 2, mean 0.5" in report.reason
    assert kinds(report) == {(Kind.NO_SIGNAL, 0), (Kind.NO_SIGNAL, 1), (Kind.NO_SIGNAL, 2)}


def test_a_signal_among_the_latest_steps_is_enough(disk: RunOnDisk) -> None:
    disk.rollout(0, age=2 * MINUTE)
    disk.rollout(1, ((1.0, 1.0),), age=MINUTE)
    report = read_run(disk.traces)
    assert report.verdict is Verdict.ADVANCING
    assert kinds(report) == {(Kind.NO_SIGNAL, 1)}


def test_nothing_on_disk_is_no_data(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    for name, said in (("empty", "holds no rollout_data"), ("nowhere", "does not exist"), ("file", "is no folder")):
        report = read_run(tmp_path / name)
        assert (report.verdict, report.exit_code, report.steps) == (Verdict.NO_DATA, 2, ())
        assert said in report.reason


def test_a_folder_that_cannot_be_looked_into_is_no_data(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for name, said in (("x" * 300, "File name too long"), ("loop", "Too many levels of symbolic links")):
        report = read_run(tmp_path / name)
        assert report.verdict is Verdict.NO_DATA and f"cannot be read: {said}" in report.reason
    closed = RunOnDisk(tmp_path / "closed")
    closed.steps(1)
    closed.traces.chmod(0)
    root = os.geteuid() == 0
    try:
        if root:
            os.seteuid(65534)  # whom the mode holds for
        report = read_run(closed.save)
    finally:
        if root:
            os.seteuid(0)
        closed.traces.chmod(0o755)
    assert report.verdict is Verdict.NO_DATA and "cannot be read: Permission denied" in report.reason


def test_traces_of_any_name_are_found_in_their_save_folder(disk: RunOnDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    disk.steps(2)
    renamed = disk.traces.rename(disk.save / "dump_details")
    assert read_run(disk.save).folder == renamed
    monkeypatch.chdir(renamed / "rollout_data")
    assert read_run(Path()).last_rollout == 1


def test_the_folder_of_all_runs_is_answered_with_the_newest(tmp_path: Path) -> None:
    for name in ("first", "second"):
        RunOnDisk(tmp_path / name).steps(1)
    os.utime(tmp_path / "first", (1, 1))
    reason = read_run(tmp_path).reason
    assert "holds 2 runs" in reason and str(tmp_path / "second") in reason


def test_a_run_that_has_just_begun_is_no_data_yet(disk: RunOnDisk) -> None:
    disk.launch()
    report = read_run(disk.traces)
    assert report.verdict is Verdict.NO_DATA
    assert "no rollout has been written" in report.reason and "launched" in report.reason
    disk.outcomes(disk.ended(0, {"Submitted": 3}, discard=False))
    report = read_run(disk.traces)
    assert report.verdict is Verdict.NO_DATA
    assert "no rollout is complete yet: 3 trajectories ended" in report.reason


def test_evaluations_alone_are_no_data_and_are_shown(disk: RunOnDisk) -> None:
    disk.evaluation(0)
    report = read_run(disk.traces)
    assert report.verdict is Verdict.NO_DATA
    assert "evaluation 0 is there" in report.reason
    (evaluation,) = report.evaluations
    assert (evaluation.rollout_id, evaluation.reward_mean, evaluation.solved) == (0, 0.75, 0.75)


def test_an_evaluation_in_progress_keeps_a_run_alive(disk: RunOnDisk) -> None:
    disk.steps(4, age=60 * MINUTE)
    disk.outcomes({**line, "evaluation": True} for line in disk.ended(4, {"Submitted": 2}, discard=False))
    report = read_run(disk.traces)
    assert report.verdict is Verdict.ADVANCING
    assert "Submitted" in report.exit_statuses and report.exit_statuses["Submitted"] == 16


def test_a_copy_without_times_says_so_instead_of_inventing_durations(disk: RunOnDisk) -> None:
    disk.steps(5, age=0)
    for path in disk.traces.rglob("*.pt"):
        disk.set_age(path, 20 * MINUTE)
    report = read_run(disk.traces)
    assert report.verdict is Verdict.ADVANCING
    assert "step time unknown" in report.reason and "as a copy's are" in report.reason
    assert all(step.written_at is None and step.training_seconds is None for step in report.steps)


def test_outcomes_give_the_durations_of_a_copy(disk: RunOnDisk) -> None:
    disk.steps(4, age=0)
    for rollout_id in range(4):
        age = (10 - rollout_id) * 10 * MINUTE
        disk.outcomes(disk.ended(rollout_id, {"Submitted": 4}, discard=False, age=age, first=10 * rollout_id))
    for place, path in enumerate(sorted(disk.traces.rglob("*.pt"))):
        disk.set_age(path, 30 - place)
    report = read_run(disk.traces)
    assert "median step 10 min" in report.reason
    assert "the last trajectory ended 70 min ago" in report.reason
    assert report.steps[0].seconds == 30.0


def test_after_a_resume_the_run_is_where_it_writes_now(disk: RunOnDisk) -> None:
    disk.launch(num_rollout=8)
    disk.steps(8, age=5 * 60 * MINUTE)
    for rollout_id in (4, 5):
        disk.rollout(rollout_id, age=(6 - rollout_id) * MINUTE)
        disk.train(rollout_id, age=(6 - rollout_id) * MINUTE)
    report = read_run(disk.traces)
    assert report.verdict is Verdict.ADVANCING
    assert (report.last_rollout, report.last_trained) == (5, 5)
    assert [step.rollout_id for step in report.steps if step.leftover] == [6, 7]
    assert kinds(report) == {(Kind.REWRITTEN, 4), (Kind.REWRITTEN, 5)}


def test_train_dumps_of_before_a_resume_do_not_count(disk: RunOnDisk) -> None:
    disk.steps(4, age=60 * MINUTE)
    disk.rollout(3, age=MINUTE)
    report = read_run(disk.traces)
    assert report.last_trained == 2
    assert not report.steps[3].trained


def test_failures_of_before_a_resume_do_not_count(disk: RunOnDisk) -> None:
    disk.steps(4, age=60 * MINUTE)
    disk.outcomes(disk.ended(4, {"ServerUnreachable": 60}, discard=True, age=50 * MINUTE))
    disk.rollout(2, age=MINUTE)
    disk.train(2, age=MINUTE)
    assert read_run(disk.traces).verdict is Verdict.ADVANCING


def test_a_dump_that_is_being_written_is_a_sign_of_life(disk: RunOnDisk) -> None:
    disk.steps(4, age=60 * MINUTE)
    whole = (disk.traces / "rollout_data" / "3.pt").read_bytes()
    disk.raw("rollout_data/4.pt", whole[: len(whole) // 2], age=1.0)
    report = read_run(disk.traces)
    assert report.verdict is Verdict.ADVANCING
    assert kinds(report) == {(Kind.UNREADABLE, 4)}
    assert "may not be complete yet" in report.findings[0].text
    assert report.last_rollout == 3


def test_train_dumps_alone_make_steps(disk: RunOnDisk) -> None:
    for rollout_id in range(3):
        disk.train(rollout_id, (0, 1), age=(3 - rollout_id) * MINUTE)
    report = read_run(disk.traces)
    assert report.verdict is Verdict.ADVANCING
    assert (report.last_rollout, report.last_trained) == (2, 2)
    assert (report.steps[0].reward_mean, report.steps[0].reward_std, report.steps[0].truncated) == (0.5, 0.5, 2)


def test_a_moved_run_is_read_where_it_lies(disk: RunOnDisk, tmp_path: Path) -> None:
    disk.launch(num_rollout=2)
    disk.steps(2, age=60 * MINUTE)
    shutil.move(disk.save, tmp_path / "moved")
    assert read_run(tmp_path / "moved").verdict is Verdict.FINISHED

"""What of a long run goes into a page: the last rollout, and some of every part of the run."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from progress.recorded_trajectory import RecordedTrajectory
from progress.sample_choice import choose_samples, choose_steps
from tests.progress.test_plot import step


def trajectory(index: int, reward: float | None, exit_status: str = "Submitted") -> RecordedTrajectory:
    return RecordedTrajectory(
        rollout_id=0,
        group_index=0,
        index=index,
        instance_id="task",
        status="completed",
        exit_status=exit_status,
        reward=reward,
        response_tokens=3,
        trained_tokens=3,
        turns=1,
        messages=(),
        commands=(),
        verifier_output=None,
        trial=None,
    )


def test_a_short_run_is_shown_whole() -> None:
    assert choose_steps([step(n) for n in range(3)], 200) == [(2, 8), (1, 8), (0, 8)]


def test_a_long_run_shows_its_last_rollout_whole_and_the_others_in_part() -> None:
    means = {0: 0.4, 700: 0.9, 900: 0.1}
    steps = [replace(step(n, means.get(n, 0.5)), trajectories=32) for n in range(2000)]
    chosen = dict(choose_steps(steps, 200))
    assert sum(chosen.values()) == 200
    assert chosen[1999] == 32
    assert {0, 700, 900} <= chosen.keys()
    places = sorted(chosen)
    assert max(later - earlier for earlier, later in pairwise(places)) < 200


def test_a_last_rollout_larger_than_the_room_leaves_half_to_the_others() -> None:
    steps = [replace(step(n), trajectories=1000) for n in range(9)]
    chosen = dict(choose_steps(steps, 100))
    assert chosen[8] == 50
    assert sum(chosen.values()) == 100


def test_what_a_resume_left_behind_is_not_the_last_rollout() -> None:
    steps = [step(0), replace(step(1), leftover=True), replace(step(2), trajectories=0)]
    assert choose_steps(steps, 10) == [(0, 8)]


@given(
    counts=st.lists(st.integers(0, 50), max_size=40),
    most=st.integers(0, 120),
    means=st.lists(st.none() | st.floats(0, 1), min_size=40, max_size=40),
)
def test_the_choice_keeps_its_limit_and_names_each_rollout_once(
    counts: list[int], most: int, means: list[float | None]
) -> None:
    steps = [replace(step(n, means[n]), trajectories=count) for n, count in enumerate(counts)]
    chosen = choose_steps(steps, most)
    assert len({rollout for rollout, _ in chosen}) == len(chosen)
    assert all(1 <= count <= counts[rollout] for rollout, count in chosen)
    assert sum(count for _, count in chosen) <= most
    if most >= sum(counts):
        assert sum(count for _, count in chosen) == sum(counts)


def test_the_best_the_worst_and_every_exit_status_are_among_a_few() -> None:
    rewards: list[float | None] = [0.5, 0.5, None, 1.0, 0.5, 0.0, 0.5]
    of_step = [trajectory(n, reward) for n, reward in enumerate(rewards)]
    of_step[4] = replace(of_step[4], exit_status="TimeLimitExceeded")
    assert [one.index for one in choose_samples(of_step, 4)] == [0, 3, 4, 5]
    assert choose_samples(of_step, 7) == of_step

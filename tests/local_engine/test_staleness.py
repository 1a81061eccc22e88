"""How old a group is, by hand."""

import pytest

from local_engine.staleness import group_staleness, staleness_of


def group(*versions: list[int]) -> list[dict[str, list[str]]]:
    return [{"weight_versions": [str(version) for version in turns]} for turns in versions]


def test_a_group_is_as_old_as_its_oldest_turn() -> None:
    assert group_staleness(group([5], [5, 5]), 5) == 0
    assert group_staleness(group([5], [3, 4, 5]), 6) == 3


def test_versions_are_numbers_and_not_texts() -> None:
    assert group_staleness(group([9, 10], [10]), 11) == 2


def test_a_step_shows_mean_largest_and_mixed_trajectories() -> None:
    age = staleness_of([group([4], [4, 5]), group([5], [3, 3])], 5, dropped_groups=2)
    assert age.mean == pytest.approx((1 + 1 + 0 + 2) / 4)
    assert (age.largest, age.mixed, age.dropped_groups) == (2, 0.25, 2)

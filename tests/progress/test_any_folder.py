"""Whatever lies in a folder, a look at it ends with a verdict of the contract and changes nothing but its cache."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from progress.cache import NAME
from progress.read_run import read_run
from progress.run_report import Kind, RunReport
from progress.show import plain_lines, screen
from tests.progress.run_on_disk import RunOnDisk, sample

NUMBERS = st.one_of(st.integers(), st.floats(), st.none(), st.booleans(), st.text(max_size=3))
AGES = st.sampled_from([-3600.0, 0.0, 1.0, 30.0, 600.0, 7200.0, 1e9])
IDS = st.integers(0, 6)


@st.composite
def odd_sample(draw: st.DrawFn) -> dict[str, Any]:
    names = (
        "reward",
        "index",
        "group_index",
        "response_length",
        "loss_mask",
        "rollout_log_probs",
        "status",
        "metadata",
    )
    value = st.one_of(NUMBERS, st.lists(NUMBERS, max_size=4), st.dictionaries(st.text(max_size=5), NUMBERS, max_size=2))
    return draw(st.dictionaries(st.sampled_from(names), value, max_size=3))


ROLLOUTS = st.tuples(IDS, st.lists(odd_sample(), max_size=4), AGES)
TRAINS = st.tuples(IDS, st.integers(0, 2), AGES)
TORN = st.tuples(st.sampled_from(["rollout_data/{}.pt", "train_data/{}_0.pt", "rollout_data/eval_{}.pt"]), IDS,
                 st.binary(max_size=40), AGES)  # fmt: skip
LINES = st.lists(
    st.one_of(
        st.binary(max_size=30),
        st.dictionaries(
            st.sampled_from(["time", "rollout_id", "index", "group_index", "exit_status", "discard", "seconds"]),
            NUMBERS,
        ).map(lambda line: json.dumps(line).encode()),
        st.builds(
            lambda step, lost, time: json.dumps(
                {"rollout_id": step, "exit_status": "NeverRan" if lost else "Submitted", "discard": lost, "time": time}
            ).encode(),
            IDS,
            st.booleans(),
            st.floats(1.7e9, 1.9e9),
        ),
    ),
    max_size=12,
)
LAUNCH = st.one_of(
    st.none(),
    st.builds(
        lambda count, ranks: {"arguments": ["--num-rollout", str(count)], "placement": {"train_ranks": ranks}},
        NUMBERS,
        NUMBERS,
    ),
)


def check(report: RunReport) -> None:
    assert report.exit_code in (0, 1, 2)
    assert report.reason
    found = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert [step["rollout_id"] for step in found["steps"]] == sorted({step["rollout_id"] for step in found["steps"]})
    assert {finding["kind"] for finding in found["findings"]} <= {kind.value for kind in Kind}
    for step in report.steps:
        assert 0 <= step.groups_with_signal <= step.groups <= step.trajectories
        for share in (step.solved, step.never_ran, step.signal_share, step.discard_share):
            assert share is None or 0.0 <= share <= 1.0
    assert list(plain_lines(report))
    assert screen(report, 80, 10, 5)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    rollouts=st.lists(ROLLOUTS, max_size=4),
    trains=st.lists(TRAINS, max_size=3),
    torn=st.lists(TORN, max_size=2),
    lines=LINES,
    launch=LAUNCH,
)
def test_a_look_at_any_folder_ends_with_a_verdict(
    rollouts: list[tuple[int, list[dict[str, Any]], float]],
    trains: list[tuple[int, int, float]],
    torn: list[tuple[str, int, bytes, float]],
    lines: list[bytes],
    launch: dict[str, Any] | None,
) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        disk = RunOnDisk(folder / "run")
        for rollout_id, changes, age in rollouts:
            made = [{**sample(place, float(place % 2)), **one} for place, one in enumerate(changes)]
            disk.rollout(rollout_id, samples=made, age=age)
        for rollout_id, rank, age in trains:
            disk.train(rollout_id, (rank,), age=age)
        for name, rollout_id, data, age in torn:
            disk.raw(name.format(rollout_id), data, age=age)
        if lines:
            disk.raw("outcomes/host-1.jsonl", b"\n".join(lines))
        if launch is not None:
            (disk.traces / "launch.json").write_text(json.dumps(launch))
        before = {path: path.read_bytes() for path in disk.traces.rglob("*") if path.is_file()}
        first = read_run(disk.save)
        check(first)
        again = read_run(disk.save)
        assert (again.verdict, again.steps, again.exit_statuses) == (first.verdict, first.steps, first.exit_statuses)
        after = {path: path.read_bytes() for path in disk.traces.rglob("*") if path.is_file() and path.name != NAME}
        assert after == before
    finally:
        shutil.rmtree(folder)

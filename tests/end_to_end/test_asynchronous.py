"""Small real runs that sample while they train."""

import pytest

from local_engine.config import Asynchrony, LocalRunConfig
from local_engine.loop import run
from tests.end_to_end.run_parts import change, dump, metrics

ASYNCHRONY = Asynchrony(max_weight_staleness=1, pause_generation_mode="retract", tis_clip=2.0, tis_clip_low=0.0)


@pytest.fixture(scope="module")
def overlapped(shared_server: LocalRunConfig, tmp_path_factory: pytest.TempPathFactory) -> LocalRunConfig:
    """Six steps of 2 prompts x 3 samples."""
    config = change(
        shared_server,
        tmp_path_factory.mktemp("overlapped") / "run",
        asynchrony=ASYNCHRONY,
        deterministic=False,
        num_rollout=6,
        save_interval=2,
        n_samples_per_prompt=3,
        global_batch_size=6,
    )
    assert run(config) == 0
    return config


def test_every_step_trains_on_weights_no_older_than_allowed(overlapped: LocalRunConfig) -> None:
    rows = metrics(overlapped)
    assert [row["rollout_id"] for row in rows] == list(range(6))
    for row in rows:
        content = dump(overlapped, f"rollout_data/{row['rollout_id']}.pt")
        oldest = [min(map(int, s["weight_versions"])) for s in content["samples"]]
        ages = [row["rollout_id"] - version for version in oldest]
        assert all(0 <= age <= 1 for age in ages)
        assert content["metadata"]["staleness"] == row["staleness"]
        assert row["staleness"]["mean"] == pytest.approx(sum(ages) / len(ages))
        assert row["staleness"]["largest"] == max(ages)
    assert any(row["staleness"]["largest"] == 1 for row in rows)

"""Small real runs that sample while they train."""

import os
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from local_engine.config import Asynchrony, LocalRunConfig
from local_engine.loop import run
from tests.end_to_end.run_parts import ROOT, change, command, dump, metrics, write_prompts, write_tasks
from tests.harbor_service.harbor_server_process import AgentServerProcess, write_task
from tests.outcomes_on_disk import read_outcomes

SCRIPT = "run-glm47-flash-agentic-async.py"
ASYNCHRONY = Asynchrony(max_weight_staleness=1, pause_generation_mode="retract", tis_clip=2.0, tis_clip_low=0.0)


@pytest.fixture(scope="module")
def asynchronous(shared_server: LocalRunConfig, tmp_path_factory: pytest.TempPathFactory) -> LocalRunConfig:
    """Of 2 prompts x 3 samples a step."""
    return change(
        shared_server,
        tmp_path_factory.mktemp("asynchronous") / "run",
        asynchrony=ASYNCHRONY,
        deterministic=False,
        save_interval=2,
        n_samples_per_prompt=3,
        global_batch_size=6,
    )


@pytest.fixture(scope="module")
def six_steps(asynchronous: LocalRunConfig) -> LocalRunConfig:
    config = change(asynchronous, asynchronous.save_dir, num_rollout=6)
    assert run(config) == 0
    return config


def trained(config: LocalRunConfig) -> list[int]:
    """Group indices in the order in which they were trained on."""
    groups: list[int] = []
    for row in metrics(config):
        samples = dump(config, f"rollout_data/{row['rollout_id']}.pt")["samples"]
        groups += [sample["group_index"] for sample in samples[:: config.n_samples_per_prompt]]
    return groups


def test_every_step_trains_on_weights_no_older_than_allowed(six_steps: LocalRunConfig) -> None:
    rows = metrics(six_steps)
    assert [row["rollout_id"] for row in rows] == list(range(6))
    for row in rows:
        content = dump(six_steps, f"rollout_data/{row['rollout_id']}.pt")
        oldest = [min(map(int, s["weight_versions"])) for s in content["samples"]]
        ages = [row["rollout_id"] - version for version in oldest]
        assert all(0 <= age <= 1 for age in ages)
        assert content["metadata"]["staleness"] == row["staleness"]
        assert row["staleness"]["mean"] == pytest.approx(sum(ages) / len(ages))
        assert row["staleness"]["largest"] == max(ages)
    assert rows[0]["staleness"]["largest"] == 0
    assert any(row["staleness"]["largest"] == 1 for row in rows)


def test_no_more_is_sampled_than_is_trained_on(six_steps: LocalRunConfig) -> None:
    assert sorted(trained(six_steps)) == list(range(12))
    lines = read_outcomes(six_steps.traces_dir)
    assert Counter(line["index"] for line in lines) == Counter(range(36))
    assert not any("rollout_id" in line for line in lines)  # nobody knows it when a trial ends, as in Miles


def test_the_sampler_and_the_trainer_agree_where_the_weights_are_the_same(six_steps: LocalRunConfig) -> None:
    """The first step's samples are of its own weights; later ones are corrected for by their ratio."""
    rows = metrics(six_steps)
    fresh = [row for row in rows if row["staleness"]["largest"] == 0 and row["groups_with_signal"]]
    for row in fresh:
        assert row["train_log_prob_gap"] < 1e-4
        assert row["train_importance_ratio"] == pytest.approx(1.0, abs=1e-3)
    older = [row for row in rows if row["staleness"]["mean"] and row["groups_with_signal"]]
    assert any(row["train_log_prob_gap"] > 1e-4 for row in older)
    assert all(0.0 <= row["train_truncated_fraction"] <= 1.0 for row in older)


@pytest.fixture(scope="module")
def slow_task(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Tasks and prompts; the verifier of one task takes as long as several steps of the others."""
    folder = tmp_path_factory.mktemp("uneven")
    quick = [f"mkdir-{n}" for n in range(5)]
    write_tasks(folder / "tasks", *quick)
    slow = "#!/bin/bash\nsleep 8\necho 0 > /logs/verifier/reward.txt\n"
    write_task(folder / "tasks", "slow", test_sh=slow)
    return folder / "tasks", write_prompts(folder / "rows.jsonl", *quick, "slow")


@pytest.mark.long
def test_a_group_that_others_have_overtaken_for_too_long_is_dropped(
    asynchronous: LocalRunConfig, slow_task: tuple[Path, Path], tmp_path: Path
) -> None:
    tasks, rows = slow_task
    server = AgentServerProcess(tmp_path, tasks, "--max-concurrent", "8")
    try:
        config = change(
            asynchronous, tmp_path / "run", num_rollout=12, harbor_tasks_dir=tasks, prompt_data=rows,
            agent_server_url=server.url, rollout_batch_size=2, save_interval=100,
        )  # fmt: skip
        assert run(config) == 0
    finally:
        server.close()
    rows_ = metrics(config)
    assert all(row["staleness"]["largest"] <= 1 for row in rows_)
    dropped = sum(row["staleness"]["dropped_groups"] for row in rows_)
    finished = {line["group_index"] for line in read_outcomes(config.traces_dir) if not line["discard"]}
    assert dropped >= 1
    assert len(finished - set(trained(config))) >= dropped


@pytest.mark.long
def test_a_run_killed_in_mid_step_goes_on_and_leaves_no_group_out(asynchronous: LocalRunConfig, tmp_path: Path) -> None:
    config = change(asynchronous, tmp_path / "run", num_rollout=1000)
    bounded = ("--max-weight-staleness", "1")
    output = tmp_path / "output.txt"
    with output.open("w") as file:
        killed = subprocess.Popen(
            command(config, *bounded, script=SCRIPT), cwd=ROOT, stdout=file, stderr=subprocess.STDOUT
        )
    try:
        deadline = time.monotonic() + 180
        while not (config.save_dir / "iter_0000001").exists() or len(metrics(config)) < 3:
            assert killed.poll() is None and time.monotonic() < deadline, output.read_text()
            time.sleep(0.02)
        os.kill(killed.pid, signal.SIGKILL)
    finally:
        killed.kill()
        killed.wait()
    saved = int((config.save_dir / "latest_checkpointed_iteration.txt").read_text())
    done = change(config, config.save_dir, num_rollout=saved + 4)
    again = subprocess.run(
        command(done, *bounded, "--resume", script=SCRIPT), cwd=ROOT, capture_output=True, text=True, timeout=180
    )
    assert again.returncode == 0, again.stdout + again.stderr
    assert [row["rollout_id"] for row in metrics(done)] == list(range(saved + 4))
    assert sorted(trained(done)) == list(range(2 * (saved + 4)))
    assert "staleness" in again.stdout and "overlap" in again.stdout


def test_held_out_prompts_are_evaluated_with_one_version_of_the_weights(
    asynchronous: LocalRunConfig, tmp_path: Path
) -> None:
    rows = write_prompts(tmp_path / "rows.jsonl", "mkdir-0", "mkdir-1", "mkdir-2", "mkdir-3")
    write_prompts(rows, "mkdir-4", "mkdir-5", split="test")
    config = change(
        asynchronous, tmp_path / "run", prompt_data=rows, num_rollout=3, eval_samples=2, eval_interval=1
    )  # fmt: skip
    assert run(config) == 0
    for rollout_id in range(4):
        samples = dump(config, f"rollout_data/eval_{rollout_id}.pt")["samples"]
        assert {version for s in samples for version in s["weight_versions"]} == {str(rollout_id)}


def test_rollouts_alone_grow_no_older(asynchronous: LocalRunConfig, tmp_path: Path) -> None:
    config = change(asynchronous, tmp_path / "run", num_rollout=4, mode="debug_rollout_only")
    assert run(config) == 0
    assert [row["staleness"]["largest"] for row in metrics(config)] == [0, 0, 0, 0]

"""Small real runs from the configuration to files and exit code; real harbor, sandbox, session server and trainer."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from local_engine.config import LocalRunConfig
from local_engine.loop import run
from progress.read_run import ReadSettings, read_run, read_samples
from progress.run_report import Kind, Verdict
from tests.end_to_end.run_parts import RIGHT, change, dump, metrics, resumed, write_prompts
from tests.outcomes_on_disk import read_outcomes


@pytest.fixture(scope="module")
def three_steps(shared_server: LocalRunConfig, tmp_path_factory: pytest.TempPathFactory) -> LocalRunConfig:
    """Finished without interruption."""
    config = change(shared_server, tmp_path_factory.mktemp("whole") / "run", num_rollout=3, n_samples_per_prompt=3)
    config = change(config, config.save_dir, global_batch_size=6)
    assert run(config) == 0
    return config


def test_dumps_hold_what_was_sampled(three_steps: LocalRunConfig) -> None:
    for rollout_id in range(3):
        content = dump(three_steps, f"rollout_data/{rollout_id}.pt")
        assert content["rollout_id"] == rollout_id
        assert [s["index"] for s in content["samples"]] == list(range(6 * rollout_id, 6 * rollout_id + 6))
        for sample in content["samples"]:
            length = sample["response_length"]
            assert len(sample["loss_mask"]) == len(sample["rollout_log_probs"]) == length > 0
            assert sample["status"] in ("completed", "truncated")
            assert sample["reward"] in (0.0, 1.0)
            assert all(p < 0 for p, m in zip(sample["rollout_log_probs"], sample["loss_mask"], strict=True) if m)
        trained = dump(three_steps, f"train_data/{rollout_id}_0.pt")["rollout_data"]
        assert trained["tokens"][0].tolist() == content["samples"][0]["tokens"]
        assert trained["raw_reward"] == [s["reward"] for s in content["samples"]]
        lines = (three_steps.traces_dir / "trajectory" / f"{rollout_id}.jsonl").read_text().splitlines()
        assert len(lines) == 6


def test_reward_means_that_the_model_wrote_the_right_command(three_steps: LocalRunConfig) -> None:
    rewards: list[float] = []
    for rollout_id in range(3):
        for sample in dump(three_steps, f"rollout_data/{rollout_id}.pt")["samples"]:
            assert (RIGHT in sample["response"]) == (sample["reward"] == 1.0)
            rewards.append(sample["reward"])
    assert {0.0, 1.0} == set(rewards)


def test_the_trainer_sees_what_the_sampler_saw(three_steps: LocalRunConfig) -> None:
    """The sampler's log-probabilities equal the trainer's, in every step: weights were published, tokens kept."""
    rows = metrics(three_steps)
    assert sum(row["groups_with_signal"] for row in rows) > 0
    for row in rows:
        assert row["train_log_prob_gap"] < 1e-4
        assert row["train_optimizer_steps"] == (row["groups_with_signal"] > 0)


def test_outcomes_have_a_line_for_every_trajectory(three_steps: LocalRunConfig) -> None:
    lines = read_outcomes(three_steps.traces_dir)
    assert sorted(line["index"] for line in lines) == list(range(18))
    assert {line["rollout_id"] for line in lines} == {0, 1, 2}
    assert not any(line["discard"] for line in lines)
    assert all(line["seconds"] > 0 and line["instance_id"].startswith("mkdir-") for line in lines)


def test_verify_progress_says_of_a_finished_run_what_the_run_said(three_steps: LocalRunConfig) -> None:
    report = read_run(three_steps.save_dir, ReadSettings(num_rollout=3))
    assert report.verdict is Verdict.FINISHED
    assert (report.last_rollout, report.last_trained) == (2, 2)
    assert not [finding for finding in report.findings if finding.kind is not Kind.NO_SIGNAL]
    said = [json.loads(line) for line in (three_steps.save_dir / "metrics.jsonl").read_text().splitlines()]
    for step, row in zip(report.steps, said, strict=True):
        assert step.reward_mean == pytest.approx(row["reward_mean"])
        assert (step.groups, step.groups_with_signal) == (2, row["groups_with_signal"])
        assert (step.discarded, step.truncated, step.trajectories) == (0, row["truncated"], 6)
        assert step.trained and step.seconds is not None
    assert sum(report.exit_statuses.values()) == 18
    first = read_samples(three_steps.save_dir, 0)[0]
    assert first.messages[0].role == "system" and first.commands


def test_the_trained_model_is_an_ordinary_checkpoint(three_steps: LocalRunConfig) -> None:
    model: Any = AutoModelForCausalLM.from_pretrained(three_steps.save_dir / "model", dtype=torch.float32)
    start: Any = AutoModelForCausalLM.from_pretrained(str(three_steps.hf_checkpoint), dtype=torch.float32)
    changed = [n for n, p in model.named_parameters() if not torch.equal(p, dict(start.named_parameters())[n])]
    assert changed and all("proj" in name for name in changed)
    assert (three_steps.save_dir / "reward.png").stat().st_size > 1000


def test_a_model_that_could_not_be_written_is_written_by_a_resume(three_steps: LocalRunConfig, tmp_path: Path) -> None:
    config = resumed(change(three_steps, tmp_path / "run"))
    shutil.copytree(three_steps.save_dir, config.save_dir)
    shutil.rmtree(config.save_dir / "model")
    assert run(config) == 0
    for path in (three_steps.save_dir / "model").iterdir():
        assert (config.save_dir / "model" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("done", [1, 2])
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(
    done: int, three_steps: LocalRunConfig, tmp_path: Path
) -> None:
    first = change(three_steps, tmp_path / "run", num_rollout=done)
    assert run(first) == 0
    again = resumed(first, num_rollout=3)
    assert run(again) == 0
    assert metrics(again) == metrics(three_steps)
    for rollout_id in range(3):
        for kind in ("rollout_data/{}.pt", "train_data/{}_0.pt"):
            got, want = (dump(c, kind.format(rollout_id)) for c in (again, three_steps))
            assert_equal(without_times(got), without_times(want))
    name = "iter_0000002/adapter/adapter_model.safetensors"
    assert_equal(load_file(again.save_dir / name), load_file(three_steps.save_dir / name))


def without_times(value: Any) -> Any:
    """Without what differs from run to run by its nature: times, and the random names of trials."""
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if k != "trial" and not str(k).endswith("seconds")}
    return [without_times(v) for v in value] if isinstance(value, list) else value


def assert_equal(got: Any, want: Any) -> None:
    assert type(got) is type(want)
    if isinstance(want, torch.Tensor):
        assert torch.equal(got, want)
    elif isinstance(want, dict):
        assert got.keys() == want.keys()
        for name in want:
            assert_equal(got[name], want[name])
    elif isinstance(want, list):
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            assert_equal(g, w)
    else:
        assert got == want


def test_held_out_prompts_are_evaluated_before_and_after(
    shared_server: LocalRunConfig, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = write_prompts(tmp_path / "rows.jsonl", "mkdir-0", "mkdir-1")
    write_prompts(rows, "mkdir-2", "mkdir-3", split="test")
    assert run(change(shared_server, tmp_path / "run", prompt_data=rows, eval_samples=2)) == 0
    config = change(shared_server, tmp_path / "run")
    for rollout_id in (0, 1):
        content = dump(config, f"rollout_data/eval_{rollout_id}.pt")
        assert [s["metadata"]["instance_id"] for s in content["samples"]] == ["mkdir-2"] * 2 + ["mkdir-3"] * 2
    trained = dump(config, "rollout_data/0.pt")["samples"]
    assert {s["metadata"]["instance_id"] for s in trained} == {"mkdir-0", "mkdir-1"}
    said = "".join(capfd.readouterr())
    assert "held-out success" in said
    assert "left 0.0s" in said  # one rollout of one is done


def test_rollouts_alone_train_and_save_nothing(shared_server: LocalRunConfig, tmp_path: Path) -> None:
    config = change(shared_server, tmp_path / "run", mode="debug_rollout_only")
    assert run(config) == 0
    assert dump(config, "rollout_data/0.pt")["samples"]
    assert not (config.traces_dir / "train_data").exists() or not list((config.traces_dir / "train_data").iterdir())
    assert not (config.save_dir / "latest_checkpointed_iteration.txt").exists()


def test_all_weights_can_be_trained(shared_server: LocalRunConfig, tmp_path: Path) -> None:
    config = change(shared_server, tmp_path / "run", full_finetune=True, deterministic=False, n_samples_per_prompt=4)
    config = change(config, config.save_dir, global_batch_size=8)
    assert run(config) == 0
    model: Any = AutoModelForCausalLM.from_pretrained(config.save_dir / "model", dtype=torch.float32)
    start: Any = AutoModelForCausalLM.from_pretrained(str(config.hf_checkpoint), dtype=torch.float32)
    assert metrics(config)[0]["groups_with_signal"] > 0
    assert not torch.equal(model.lm_head.weight, start.lm_head.weight)


@pytest.mark.parametrize("file", ["trainer.pt", "manifest.json", "adapter/adapter_model.safetensors"])
def test_a_corrupt_checkpoint_is_named_before_anything_starts(
    file: str, three_steps: LocalRunConfig, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(three_steps.save_dir, folder)
    broken = folder / "iter_0000002" / file
    content = bytearray(broken.read_bytes())
    content[len(content) // 2] ^= 0xFF
    broken.write_bytes(content)
    config = resumed(change(three_steps, folder), num_rollout=4)
    assert run(config) == 2
    said = "".join(capfd.readouterr()).replace("\n", "")
    assert "iter_0000002" in said and file in said
    assert "iter_0000001" in said  # the way out
    assert len(metrics(config)) == 3


def test_other_options_are_refused_on_resume(
    three_steps: LocalRunConfig, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(three_steps.save_dir, folder)
    assert run(resumed(change(three_steps, folder), num_rollout=4, lr=0.5)) == 2
    said = " ".join("".join(capfd.readouterr()).split())
    assert "lr was 0.003, is 0.5" in said


def test_missing_task_folders_are_named_before_training(
    shared_server: LocalRunConfig, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = write_prompts(tmp_path / "rows.jsonl", "mkdir-0", "mkdir-1", "nowhere-7")
    config = change(shared_server, tmp_path / "run", prompt_data=rows)
    assert run(config) == 2
    assert "nowhere-7" in "".join(capfd.readouterr())
    assert run(change(config, config.save_dir, harbor_tasks_dir=tmp_path / "wrong")) == 2
    assert not config.traces_dir.exists()


def test_the_plan_and_the_table_are_printed(
    shared_server: LocalRunConfig, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = change(shared_server, tmp_path / "run")
    assert run(config) == 0
    said = "".join(capfd.readouterr())
    assert "2 prompts x 2 samples = 4 trials" in said
    assert "local_engine.chat" in said
    assert json.loads((config.save_dir / "metrics.jsonl").read_text())["rollout_id"] == 0

"""What goes wrong around a run: each fault costs what it must and no more, and is said."""

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from local_engine.config import LocalRunConfig
from local_engine.loop import run
from local_engine.sampler import Generation, Sampler
from tests.end_to_end.run_parts import ROOT, change, command, dump, metrics, write_prompts, write_tasks
from tests.harbor_service.harbor_server_process import AgentServerProcess, write_task
from tests.outcomes_on_disk import read_outcomes

Captured = pytest.CaptureFixture[str]


def said(capfd: Captured) -> str:
    return " ".join("".join(capfd.readouterr()).split())


class KillOnce(threading.Thread):
    """Kills the run's own agent server, known from the run's ready file, once a trial of it is under way."""

    def __init__(self, save_dir: Path) -> None:
        super().__init__(daemon=True)
        self.work_dir = save_dir / "agent_server"
        self.killed: int | None = None

    def run(self) -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            trials = self.work_dir / "trials"
            if trials.is_dir() and any(trials.iterdir()):
                self.killed = int(json.loads((self.work_dir / "agent_server.ready").read_text())["pid"])
                os.kill(self.killed, signal.SIGKILL)
                return
            time.sleep(0.005)


def test_an_agent_server_killed_in_mid_step_is_started_again(own_server: LocalRunConfig, capfd: Captured) -> None:
    killer = KillOnce(own_server.save_dir)
    killer.start()
    assert run(own_server) == 0
    killer.join(5)
    assert killer.killed is not None
    assert "its trials are discarded" in said(capfd)
    lines = read_outcomes(own_server.traces_dir)
    lost = [line for line in lines if line["discard"]]
    assert lost and {line["exit_status"] for line in lost} <= {"ServerUnreachable", "Aborted"}
    samples = dump(own_server, "rollout_data/0.pt")["samples"]
    assert len(samples) == 4 and all(s["reward"] is not None for s in samples)
    assert metrics(own_server)[0]["discarded"] == len(lost)
    assert {line["index"] for line in lines} >= {s["index"] for s in samples}


def test_a_trial_that_times_out_is_scored(own_server: LocalRunConfig, slow_checkpoint: Path, capfd: Captured) -> None:
    """The model's command sleeps for a minute, its agent may take a second and a half."""
    config = replace(own_server, hf_checkpoint=str(slow_checkpoint), agent_timeout=1.5)
    assert run(config) == 0
    samples = dump(config, "rollout_data/0.pt")["samples"]
    assert {s["metadata"]["exit_status"] for s in samples} == {"TimeLimitExceeded"}
    assert [s["reward"] for s in samples] == [0.0] * 4
    assert all(any(s["loss_mask"]) for s in samples)
    assert metrics(config)[0]["groups_with_signal"] == 0


@pytest.fixture(scope="module")
def odd_tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_tasks(tmp_path_factory.mktemp("odd"), "good-0", "good-1", "good-2", "good-3")
    write_task(folder, "broken-0", test_sh="#!/bin/bash\nexit 1\n")
    write_task(folder, "broken-1", test_sh="#!/bin/bash\necho not a number > /logs/verifier/reward.txt\n")
    write_task(folder, "toml-0", task_toml="this is = not [toml")
    write_task(folder, "long-0")
    (folder / "long-0" / "instruction.md").write_text("one word and another and " * 1000)
    return folder


@pytest.fixture(scope="module")
def odd_server(odd_tasks: Path, tmp_path_factory: pytest.TempPathFactory):
    process = AgentServerProcess(tmp_path_factory.mktemp("server"), odd_tasks, "--max-concurrent", "8")
    yield process
    process.close()


@pytest.fixture
def odd_run(
    shared_server: LocalRunConfig, odd_tasks: Path, odd_server: AgentServerProcess, tmp_path: Path
) -> LocalRunConfig:
    return change(shared_server, tmp_path / "run", harbor_tasks_dir=odd_tasks, agent_server_url=odd_server.url)


def test_a_task_with_a_broken_verifier_scores_nothing_and_ends_nothing(odd_run: LocalRunConfig, tmp_path: Path) -> None:
    config = replace(odd_run, prompt_data=write_prompts(tmp_path / "rows.jsonl", "broken-0", "broken-1"))
    assert run(config) == 0
    samples = dump(config, "rollout_data/0.pt")["samples"]
    assert {s["metadata"]["instance_id"] for s in samples} == {"broken-0", "broken-1"}
    assert {(s["metadata"]["exit_status"], s["reward"]) for s in samples} == {("VerifierError", 0.0)}


def test_a_prompt_longer_than_the_context_is_replaced(odd_run: LocalRunConfig, tmp_path: Path) -> None:
    rows = write_prompts(tmp_path / "rows.jsonl", "long-0", "good-0", "good-1", "good-2")
    config = replace(odd_run, prompt_data=rows, num_rollout=2)
    assert run(config) == 0
    lost = [line for line in read_outcomes(config.traces_dir) if line["discard"]]
    assert {(line["instance_id"], line["exit_status"]) for line in lost} == {("long-0", "NeverRan")}
    for rollout_id in range(2):
        samples = dump(config, f"rollout_data/{rollout_id}.pt")["samples"]
        assert len(samples) == 4
        assert all(s["metadata"]["instance_id"].startswith("good-") for s in samples)


def test_a_context_that_fills_up_in_a_later_turn_is_scored(odd_run: LocalRunConfig, tmp_path: Path) -> None:
    """Room for one turn: the second request does not fit and ends the trial, whose first turn is trained."""
    rows = write_prompts(tmp_path / "rows.jsonl", "good-0", "good-1")
    roomy = replace(odd_run, prompt_data=rows, n_samples_per_prompt=4, global_batch_size=8)
    assert run(roomy) == 0
    first = dump(roomy, "rollout_data/0.pt")["samples"][0]
    prompt = len(first["tokens"]) - first["response_length"]
    tight = change(roomy, tmp_path / "tight", max_seq_len=prompt + 10)
    assert run(tight) == 0
    samples = dump(tight, "rollout_data/0.pt")["samples"]
    full = [s for s in samples if s["metadata"]["exit_status"] == "SequenceLengthLimitExceeded"]
    assert full and all(s["reward"] == 0.0 and len(s["tokens"]) <= prompt + 10 for s in full)


def test_a_task_folder_that_cannot_be_read_discards_its_trials(odd_run: LocalRunConfig, tmp_path: Path) -> None:
    config = replace(odd_run, prompt_data=write_prompts(tmp_path / "rows.jsonl", "toml-0", "good-0", "good-1"))
    assert run(replace(config, num_rollout=2)) == 0
    lost = {(o["instance_id"], o["exit_status"]) for o in read_outcomes(config.traces_dir) if o["discard"]}
    assert {name for name, _ in lost} == {"toml-0"}
    assert {status for _, status in lost} <= {"TaskBroken", "RequestRejected"}


def test_nothing_but_discards_ends_the_run_with_the_cause(
    shared_server: LocalRunConfig, tmp_path: Path, capfd: Captured
) -> None:
    config = change(
        shared_server,
        tmp_path / "run",
        agent_server_url="http://127.0.0.1:9",  # nobody listens there
        max_consecutive_discards=6,
        extra_env={"AGENT_SERVER_WAIT": "0"},
    )
    assert run(config) == 1
    text = said(capfd)
    assert "6" in text and "ServerUnreachable" in text
    lines = read_outcomes(config.traces_dir)
    assert len(lines) >= 6 and {line["exit_status"] for line in lines} <= {"ServerUnreachable", "Aborted"}
    assert not (config.save_dir / "latest_checkpointed_iteration.txt").exists()


def test_a_failed_forward_pass_ends_the_run_with_its_cause(
    shared_server: LocalRunConfig, tmp_path: Path, capfd: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, count = Sampler.step, 0

    def failing_step(sampler: Sampler) -> list[Generation]:
        nonlocal count
        count += 1
        if count == 2:
            raise RuntimeError("not enough memory, said the test")
        return step(sampler)

    monkeypatch.setattr(Sampler, "step", failing_step)
    config = change(shared_server, tmp_path / "run")
    assert run(config) == 1
    assert "RuntimeError: not enough memory, said the test" in said(capfd)
    assert len(read_outcomes(config.traces_dir)) == 4  # nothing was replaced


@pytest.mark.long
def test_a_full_disk_costs_the_dumps_and_not_the_run(shared_server: LocalRunConfig, tmp_path: Path) -> None:
    """The traces folder is a memory disk of 12 KiB, in a mount namespace of the run."""
    config = change(shared_server, tmp_path / "run")
    config.traces_dir.mkdir(parents=True)
    inside = command(config, "--save-traces-dir", str(config.traces_dir), "--deterministic")
    script = f'mount -t tmpfs -o size=12k none "{config.traces_dir}" || exit 77; exec "$@"'
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", *inside],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    if done.returncode == 77 or "unshare failed" in done.stderr:
        pytest.skip("this machine lets no process mount a memory disk of its own")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No space left on device" in done.stdout + done.stderr
    assert "0.pt was not written" in " ".join((done.stdout + done.stderr).split())
    assert (config.save_dir / "iter_0000000" / "trainer.pt").exists()
    assert metrics(config)[0]["rollout_id"] == 0


@pytest.mark.long
def test_ctrl_c_saves_and_says_how_to_go_on(own_server: LocalRunConfig, server: AgentServerProcess) -> None:
    """The whole command with its own agent server, stopped in mid-run and gone on with as it said."""
    endless = command(replace(own_server, num_rollout=1000, save_interval=1000))
    output = own_server.save_dir.parent / "output.txt"
    with output.open("w") as file:
        process = subprocess.Popen(endless, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + 120
        while not (own_server.save_dir / "metrics.jsonl").exists():
            assert process.poll() is None and time.monotonic() < deadline, output.read_text()
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        code = process.wait(60)
    finally:
        process.kill()
    text = " ".join(output.read_text().split())
    assert code == 130, text
    done = len(metrics(own_server))
    assert f"{done} of 1000 rollouts are done" in text and "--resume" in text
    assert int((own_server.save_dir / "latest_checkpointed_iteration.txt").read_text()) == done - 1
    ready = own_server.save_dir / "agent_server" / "agent_server.ready"
    assert not ready.exists() or not Path(f"/proc/{json.loads(ready.read_text())['pid']}").exists()
    more = command(replace(own_server, num_rollout=done + 1, agent_server_url=server.url), "--resume")
    again = subprocess.run(more, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert again.returncode == 0, again.stdout + again.stderr
    assert [row["rollout_id"] for row in metrics(own_server)] == list(range(done + 1))


@pytest.mark.parametrize("fault", ["no folder", "a task is missing", "no checkpoint"])
def test_wrong_folders_are_refused_before_anything_starts(
    fault: str, own_server: LocalRunConfig, tmp_path: Path
) -> None:
    tasks = tmp_path / "tasks"
    config = replace(own_server, harbor_tasks_dir=tasks)
    if fault == "a task is missing":
        assert own_server.harbor_tasks_dir is not None
        shutil.copytree(own_server.harbor_tasks_dir, tasks)
        shutil.rmtree(tasks / "mkdir-3")
    if fault == "no checkpoint":
        config = replace(own_server, hf_checkpoint=str(tmp_path / "nothing"))
    done = subprocess.run(command(config), cwd=ROOT, capture_output=True, text=True, timeout=60)
    text = " ".join((done.stdout + done.stderr).split())
    assert done.returncode in (2, 3), text
    named = {"no folder": str(tasks), "a task is missing": "mkdir-3", "no checkpoint": str(tmp_path / "nothing")}
    assert named[fault] in text
    assert not own_server.save_dir.exists()

"""What cannot work is refused before anything starts, with the numbers and the way out."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.scripts import ROOT
from tests.launcher.miles import sources

REFUSED = [
    ("sync", "--rollout-batch-size 4 --n-samples-per-prompt 8 --global-batch-size 24", "pass --global-batch-size 32"),
    ("sync", "--n-samples-per-prompt 1", "a GRPO group of one has no advantage"),
    ("sync", "--num-gpus-per-node 0", "--num-gpus-per-node 0"),
    ("sync", "--num-nodes -1", "--num-nodes -1"),
    ("sync", "--num-nodes 3", "6 data-parallel ranks"),
    ("sync", "--num-nodes 6 --global-batch-size 16", "pass --num-nodes 1, 2, 4, 8"),
    ("async", "--train-num-nodes 3", "pass --train-num-nodes 1, 2, 4, 8, 16"),
    ("async", "--num-gpus-per-node 6 --num-nodes 3 --global-batch-size 32 --train-num-nodes 2", "multiple of 6"),
    ("async", "--no-use-precision-aware-optimizer", "--no-optimizer-cpu-offload"),
    ("sync", "--wandb-project https://u:tok@h/p", "--wandb-project carries a user or password"),
    ("sync", "--hf-checkpoint https://u:tok@h/p", "--hf-checkpoint carries"),
    ("sync", "--prompt-data s3://u:tok@h/p", "--prompt-data carries"),
    ("sync", "--session-server-external-host u:tok@h", "'***@h'"),
    ("sync", "--miles-host-ip http://u:tok@h", "--miles-host-ip carries"),
    ("sync", "--session-server-external-host [::1]", "brackets"),
    ("sync", "--router-external-host a --session-server-external-host b", "one option"),
    ("sync", "--wandb-api-key tok@", "WANDB_API_KEY"),
    ("sync", "--openai-api-key=tok@", "NAME_FILE=path"),
    ("sync", "--save-dr=/data/checkpoints/glm", "--save-dir"),
    ("sync", "--agent-server-ulr=http://h:1", "--agent-server-url"),
    ("sync", "--extra-env-vars AGENT_TRIAL_TIMEOUT=soon", "AGENT_TRIAL_TIMEOUT='soon'"),
    ("sync", "--miles-host-ip trainer.example", "--miles-host-ip 'trainer.example'"),
    ("sync", "--agent-server-url http://u:tok@h:1", "AGENT_SERVER_TOKEN_FILE"),
    ("sync", "--session-server-external-host http://h:1", "--session-server-external-host"),
    ("sync", "--session-server-external-host h:30000", "--session-server-external-host"),
    ("sync", "--session-server-port 65530", "65535"),
    ("sync", "--sglang-router-port 30005", "session server 5"),
    ("sync", "--prometheus-port 31000", "--sglang-router-port"),
    ("sync", "--extra-env-vars A=b=c D=e f", "'f' has no '='"),
    ("sync", "--extra-env-vars DAYTONA_API_KEY=x", "DAYTONA_API_KEY_FILE=path"),
    ("sync", "--extra-env-vars HARBOR_ADMIN_SECRET=x", "HARBOR_ADMIN_SECRET_FILE=path"),
    ("sync", "--ray-address ray://h:10001", "http://"),
    ("sync", "--agent-server-url http://a..b:1", "is not a URL"),
    ("sync", f"--agent-server-url http://{'a' * 64}:1", "is not a URL"),
    ("sync", "--agent-server-url http://h:1/\x01", "is not a URL"),
    ("sync", f"--num-rollout 1{'0' * 400}", "--num-rollout (a number of many digits)"),
    ("sync", "--session-server-workers 300000000", "--session-server-workers 300000000"),
    ("sync", "--num-gpus-per-node 300000000", "--num-gpus-per-node 300000000"),
    ("sync", "--wandb-project=--use-miles-dashboard", "cannot begin with --"),
    ("sync", "--save-dir /etc/passwd/x", "/etc/passwd is a file"),
    ("sync", f"--save-dir /tmp/{'x' * 300}", "File name too long"),
    ("sync", "--load-dir /etc/passwd --save-dir /new", "/etc/passwd is a file"),
    ("lora", "--save-dir /etc/passwd/x", "/etc/passwd is a file"),
    ("sync", "--save-dir ~nosuchuser/x", "no home folder"),
    ("sync", "--extra-env-vars HF_TOKEN= tok@", "HF_TOKEN_FILE=path"),
    ("sync", "--extra-env-vars AGENT_TRIAL_TIMEOUT=1e308", "10,000,000"),
    ("async", "--train-num-nodes 2 --num-nodes 2", "leaves 0 nodes for rollout"),
    ("async", "--num-nodes 1", "--num-nodes 2"),
    ("async", "--train-num-nodes 0", "--train-num-nodes 0"),
    ("async", "--pause-generation-mode in_place --update-weight-transfer-mode p2p", "retract"),
    ("async", "--over-sampling-batch-size 16", "pass at least 32"),
    ("async", "--max-tokens-per-gpu 0", "--max-tokens-per-gpu 0"),
    ("lora", "--num-nodes 3", "pass --num-nodes 1, 2, 4, 8, 16, 32"),
    ("lora", "--num-nodes 6", "expert parallel 48 does not divide the 256 experts"),
    ("lora", "--num-gpus-per-node 7", "64 heads of GLM-5.2"),
    ("lora", "--fp8-rollout-gpus-per-engine 12", "--fp8-rollout-gpus-per-engine 1, 2, 4, 8, 16, 32"),
    ("lora", "--dsa-attention-backend megatron", "tilelang"),
    ("lora", "--sglang-context-length 4096", "pass --sglang-context-length 65536"),
    ("lora", "--sglang-mem-fraction-static 1.2", "between 0 and 1"),
    ("lora", "--num-nodes 16 --rollout-batch-size 3 --global-batch-size 24", "16 data-parallel ranks"),
    ("lora", "--ref-load /x", "the base with its adapter off"),
    ("lora", "--extra-env-vars DAYTONA_API_KEY=x", "DAYTONA_API_KEY_FILE=path"),
    ("lora", "--miles-host-ip head-node", "numeric"),
]


@pytest.mark.parametrize(("script", "flags", "text"), REFUSED)
def test_it_is_refused_with_the_way_out(launch: Callable[..., Any], script: str, flags: str, text: str) -> None:
    answer = launch("--dry-run", *flags.split(), script=script)
    assert answer.code == 2, answer.out
    assert text in answer.err
    assert "tok@" not in answer.err


@pytest.mark.parametrize("name", ["WANDB_BASE_URL", "no_proxy", "PYTHONPATH", "NCCL_DEBUG_FILE", "AGENT_MODEL_NAME"])
def test_a_password_in_a_url_of_the_environment_is_refused_by_name(launch: Callable[..., Any], name: str) -> None:
    answer = launch("--dry-run", **{name: "https://u:tok@h"})
    assert answer.code == 2
    assert name in answer.err and "tok@" not in answer.err + answer.out


def test_a_value_keeps_its_further_equals_signs(launch: Callable[..., Any]) -> None:
    answer = launch("--dry-run", "--format", "json", "--extra-env-vars", "A=b=c", "D=e")
    assert '"A": "b=c"' in answer.out and '"D": "e"' in answer.out


@pytest.mark.parametrize(
    "option", ["--save-dir", "--hf-checkpoint", "--prompt-data", "--miles-path", "--wandb-project"]
)
def test_an_empty_value_where_one_is_needed_is_refused(launch: Callable[..., Any], option: str) -> None:
    answer = launch("--dry-run", option, "")
    assert answer.code == 2
    assert f"{option} is empty" in answer.err


def test_the_documented_empty_values_mean_not_given(launch: Callable[..., Any]) -> None:
    empty = ("--save-traces-dir", "", "--wandb-team", "", "--router-external-host", "", "--miles-host-ip", "")
    given, plain = launch("--dry-run", "--format", "json", *empty), launch("--dry-run", "--format", "json")
    assert json.loads(given.out)["arguments"] == json.loads(plain.out)["arguments"]


@pytest.mark.parametrize("value", ["foo bar$(x)", "u:tok@h", "a..b"])
def test_a_master_address_that_is_none_is_refused(launch: Callable[..., Any], value: str) -> None:
    answer = launch("--dry-run", MASTER_ADDR=value)
    assert answer.code == 2
    assert "MASTER_ADDR=" in answer.err and "tok@" not in answer.err


def test_a_learning_rate_keeps_its_digits(launch: Callable[..., Any]) -> None:
    arguments = json.loads(launch("--dry-run", "--format", "json", "--lr", "1.23456789e-6").out)["arguments"]
    assert arguments[arguments.index("--lr") + 1] == "1.23456789e-06"


def test_local_is_no_address_of_a_head(launch: Callable[..., Any]) -> None:
    plan = json.loads(launch("--dry-run", "--format", "json", "--ray-address", "local").out)
    assert plan["environment"]["MASTER_ADDR"] == "127.0.0.1"


def test_a_half_written_adapter_is_passed_over(launch: Callable[..., Any], tmp_path: Path) -> None:
    for number, shards in ((9, 32), (19, 31), (29, 16)):
        adapter = tmp_path / "old" / f"iter_{number:07d}" / "adapter"
        adapter.mkdir(parents=True)
        for rank in range(shards):
            (adapter / f"adapter_megatron_rank{rank}.pt").write_bytes(b"x")
    flags = ("--load-dir", str(tmp_path / "old"), "--save-dir", str(tmp_path / "new"))
    plan = json.loads(launch("--dry-run", "--format", "json", *flags, script="lora").out)
    assert plan["files"]["load"] == str(tmp_path / "old" / "iter_0000009" / "adapter")


def test_a_link_in_a_circle_is_no_folder(launch: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    answer = launch("--dry-run", "--save-dir", str(tmp_path / "loop"), "--resume")
    assert answer.code == 2
    assert "--save-dir" in answer.err


def test_a_plan_that_cannot_be_printed_is_one_sentence() -> None:
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [sys.executable, "run.py", "--dry-run"],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert ended.returncode == 1
    assert ended.stderr == "run.py: the plan cannot be printed (No space left on device)\n"


def write_tracker(folder: Path, text: str) -> str:
    folder.mkdir()
    (folder / "latest_checkpointed_iteration.txt").write_text(text)
    return str(folder)


@pytest.mark.parametrize("script", ["sync", "async"])
def test_a_run_that_is_done_has_nothing_left(launch: Callable[..., Any], tmp_path: Path, script: str) -> None:
    saved = write_tracker(tmp_path / "saved", "39")
    answer = launch("--dry-run", "--save-dir", saved, "--resume", "--num-rollout", "40", script=script)
    assert answer.code == 4
    assert "nothing left to do" in answer.err
    assert launch("--dry-run", "--save-dir", saved, "--resume", "--num-rollout", "41", script=script).code == 0


@pytest.mark.parametrize(
    ("tracker", "flags", "text"),
    [
        ("release", "--resume", "'release'"),
        ("9" * 5000, "--resume", "no rollout id"),
        ("39", "", "--resume"),
        (None, "--resume", "has no latest_checkpointed_iteration.txt"),
    ],
)
def test_a_folder_that_cannot_be_gone_on_in_is_refused(
    launch: Callable[..., Any], tmp_path: Path, tracker: str | None, flags: str, text: str
) -> None:
    folder = tmp_path / "saved"
    if tracker is not None:
        write_tracker(folder, tracker)
    before = sorted(tmp_path.rglob("*"))
    answer = launch("--dry-run", "--save-dir", str(folder), *flags.split())
    assert answer.code == 2
    assert text in answer.err
    assert sorted(tmp_path.rglob("*")) == before


def test_what_a_failed_start_left_is_no_used_folder(launch: Callable[..., Any], tmp_path: Path) -> None:
    for name in ("launch", "traces"):
        (tmp_path / "saved" / name).mkdir(parents=True)
    for script in ("sync", "async", "lora"):
        assert launch("--dry-run", "--save-dir", str(tmp_path / "saved"), script=script).code == 0


def test_load_without_a_tracker_is_refused(launch: Callable[..., Any], tmp_path: Path) -> None:
    answer = launch("--dry-run", "--load-dir", str(tmp_path), "--save-dir", str(tmp_path / "new"))
    assert answer.code == 2
    assert "would start at rollout 0 unnoticed" in answer.err


def test_a_lora_run_goes_on_in_a_new_folder_only(launch: Callable[..., Any], tmp_path: Path) -> None:
    adapter = tmp_path / "old" / "iter_0000009" / "adapter"
    adapter.mkdir(parents=True)
    for rank in range(32):
        (adapter / f"adapter_megatron_rank{rank}.pt").write_bytes(b"x")
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    answer = launch("--dry-run", "--resume", "--save-dir", old, script="lora")
    assert answer.code == 2 and f"--load-dir {old} --save-dir" in answer.err
    answer = launch("--dry-run", "--load-dir", old, "--save-dir", new, "--num-nodes", "2", script="lora")
    assert answer.code == 2 and "saved by 32 training GPUs and this plan has 16" in answer.err
    answer = launch("--dry-run", "--load-dir", old, "--save-dir", new, "--num-rollout", "10", script="lora")
    assert answer.code == 4
    answer = launch("--dry-run", "--load-dir", new, "--save-dir", str(tmp_path / "newer"), script="lora")
    assert answer.code == 2 and "--load-dir" in answer.err


def test_a_miles_without_what_the_run_is_about_is_refused(launch: Callable[..., Any], tmp_path: Path) -> None:
    miles = str(sources.may(tmp_path / "may"))
    answer = launch("--dry-run", "--miles-path", miles, script="async")
    assert answer.code == 2 and "has no --fully-async" in answer.err
    answer = launch("--dry-run", "--miles-path", miles, script="lora")
    assert answer.code == 2 and "--dsa-attention-backend" in answer.err


def test_several_nodes_without_a_cluster_are_refused_before_anything_is_written(
    launch: Callable[..., Any], tmp_path: Path
) -> None:
    answer = launch("--skip-preflight", "--save-dir", str(tmp_path / "saved"), script="lora")
    assert answer.code == 3
    assert "--ray-address" in answer.err
    assert list(tmp_path.iterdir()) == []

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.cli import fields_of, groups_of
from tests.launcher.miles.launchers import SCRIPTS

ROOT = Path(__file__).parents[2]
TABLE: dict[str, Any] = json.loads((Path(__file__).parent / "recipe_table.json").read_text())

# The documented command of one node with 8 GPUs.
DOCUMENTED = """--num-nodes 1 --num-gpus-per-node 8 --hf-checkpoint /models/GLM-4.7-Flash --ref-load /models/ref
--save-dir /ckpt --prompt-data /data/train.jsonl --max-seq-len 65536 --rollout-max-response-len 8192
--rollout-batch-size 4 --n-samples-per-prompt 8 --global-batch-size 32 --num-rollout 200 --save-interval 20
--agent-server-url http://agent:11000 --agent-model-name model --harbor-tasks-dir /tasks --router-external-host trainer
--miles-host-ip 0.0.0.0 --save-traces-dir /traces --wandb-project p --wandb-team t --wandb-run-name r
--megatron-path /m --miles-path /mi --mode normal --use-prometheus --prometheus-port 9090 --skip-prepare""".split()


def flat(options: object) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, group in groups_of(type(options)):
        part = getattr(options, name)
        if part is not None:
            values |= {field: getattr(part, field) for field, _, _ in fields_of(group)}
    return values


@pytest.mark.parametrize(
    ("column", "script", "argv"),
    [("sync", "sync", ()), ("local", "sync", ("--engine", "local")), ("async", "async", ()), ("lora", "lora", ())],
)
def test_an_option_not_given_takes_the_default_of_the_launcher_and_its_engine(
    options_of: Callable[..., Any], column: str, script: str, argv: tuple[str, ...]
) -> None:
    values = json.loads(json.dumps(flat(options_of(*argv, script=script).options)))
    assert {name: values[name] for name in TABLE[column]} == TABLE[column]


def test_the_documented_command_parses_unchanged(options_of: Callable[..., Any]) -> None:
    options = options_of(*DOCUMENTED).options
    assert options.machines.session_server_external_host == "trainer"
    assert options.machines.miles_host_ip == "0.0.0.0"
    assert (options.rollout.num_rollout, options.rollout.save_interval) == (200, 20)
    assert options.flash is not None and options.flash.skip_prepare


@pytest.mark.parametrize("flags", TABLE["refused by local"])
def test_an_option_the_local_engine_lacks_is_refused_by_name(launch: Callable[..., Any], flags: str) -> None:
    answer = launch("--engine", "local", *flags.split())
    name = flags.split()[0].replace("--router-external-host", "--session-server-external-host")
    assert answer.code == 2
    assert name in answer.err
    assert "; " in answer.err or "uses the CPU" in answer.err


@pytest.mark.parametrize(
    ("environment", "option", "value"),
    [
        ({"SLURM_JOB_NUM_NODES": "3"}, "num_nodes", 3),
        ({"AGENT_SERVER_URL": "http://a:1", "SWE_AGENT_URL": "http://b:2"}, "agent_server_url", "http://a:1"),
        ({"SWE_AGENT_URL": "http://b:2"}, "agent_server_url", "http://b:2"),
        ({"AGENT_MODEL_NAME": "m"}, "agent_model_name", "m"),
        ({"HARBOR_TASKS_DIR": "/t"}, "harbor_tasks_dir", "/t"),
        ({"MILES_HOST_IP": "10.0.0.1"}, "miles_host_ip", "10.0.0.1"),
        ({"WANDB_PROJECT": "p"}, "wandb_project", "p"),
        ({"WANDB_TEAM": "t"}, "wandb_team", "t"),
        ({"RAY_ADDRESS": "auto"}, "ray_address", "auto"),
    ],
)
def test_the_environment_stands_in_for_an_option(
    options_of: Callable[..., Any], environment: dict[str, str], option: str, value: object
) -> None:
    assert flat(options_of(**environment).options)[option] == value


def test_the_command_line_is_stronger_than_the_environment(options_of: Callable[..., Any]) -> None:
    resolved = options_of("--agent-server-url", "http://c:3", AGENT_SERVER_URL="http://a:1")
    assert resolved.options.agent.agent_server_url == "http://c:3"
    assert resolved.from_environment == {}


def test_an_environment_number_that_is_none_is_refused(launch: Callable[..., Any]) -> None:
    answer = launch(SLURM_JOB_NUM_NODES="two")
    assert answer.code == 2
    assert "SLURM_JOB_NUM_NODES='two'" in answer.err


def test_an_unknown_flag_fails_with_the_near_miss(launch: Callable[..., Any]) -> None:
    answer = launch("--num-rolout", "3")
    assert answer.code == 2
    assert "--num-rollout" in answer.err


@pytest.mark.parametrize("argv", [("--wandb-key", "canary"), ("--wandb-key=canary",), ("--wandb_key", "canary")])
def test_a_wandb_key_is_refused_and_never_repeated(launch: Callable[..., Any], argv: tuple[str, ...]) -> None:
    answer = launch("--engine", "local", *argv)
    assert answer.code == 2
    assert "WANDB_API_KEY" in answer.err
    assert "canary" not in answer.err + answer.out


@pytest.mark.parametrize(
    ("script", "flags"), [(script, flags) for script, all_of in TABLE["lacked"].items() for flags in all_of]
)
def test_an_option_of_another_launcher_is_refused_by_name(launch: Callable[..., Any], script: str, flags: str) -> None:
    answer = launch("--dry-run", *flags.split(), script=script)
    assert answer.code == 2
    assert flags.split()[0] in answer.err


@pytest.mark.parametrize(
    ("script", "flags"),
    [
        ("async", "--train-num-nodes 2"),
        ("async", "--rollout-fp8"),
        ("async", "--over-sampling-batch-size 64"),
        ("async", "--update-weight-transfer-mode p2p"),
        ("async", "--max-tokens-per-gpu 8192"),
        ("async", "--no-optimizer-cpu-offload"),
        ("async", "--deterministic"),
        ("async", "--max-weight-staleness 0"),
        ("async", "--no-use-tis --tis-clip 3"),
        ("async", "--tis-clip 0.5"),
        ("async", "--tis-clip-low 1.5"),
        ("lora", "--fp8-rollout-checkpoint /m"),
        ("lora", "--sglang-context-length 4096"),
        ("lora", "--dsa-attention-backend tilelang"),
        ("lora", "--no-use-r3"),
        ("lora", "--lora-base-cpu-backup"),
        ("lora", "--offload-train-disk-dir /d"),
        ("lora", "--lora-rank 0"),
    ],
)
def test_what_has_no_meaning_in_a_rehearsal_is_refused_by_name(
    launch: Callable[..., Any], script: str, flags: str
) -> None:
    answer = launch("--engine", "local", "--dry-run", *flags.split(), script=script)
    assert answer.code == 2
    name = next(part for part in flags.split() if part.startswith("--") and part != "--no-use-tis")
    assert name.replace("--no-", "--") in answer.err


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_launcher_rehearses_on_this_machine(launch: Callable[..., Any], script: str) -> None:
    answer = launch("--engine", "local", "--dry-run", "--format", "json", script=script)
    assert answer.code == 0, answer.err
    plan = json.loads(answer.out)
    assert (plan["launcher"], plan["engine"]) == (SCRIPTS[script], "local")
    arguments = plan["arguments"]
    assert ("--max-weight-staleness" in arguments) == (script == "async")
    assert ("q_a_proj" in arguments) == (script == "lora")


def test_a_cluster_run_is_bounded_and_corrected_where_it_is_asked_for(launch: Callable[..., Any]) -> None:
    answer = launch("--dry-run", "--format", "json", "--max-weight-staleness", "0", "--use-tis", script="async")
    assert answer.code == 0, answer.err
    arguments = json.loads(answer.out)["arguments"]
    place = arguments.index("--max-weight-staleness")
    assert arguments[place : place + 7] == [
        *("--max-weight-staleness", "0", "--use-tis", "--tis-clip", "2.0", "--tis-clip-low", "0.0")
    ]


def test_names_not_given_follow_the_model_name_and_the_base_folder(options_of: Callable[..., Any]) -> None:
    sync = flat(options_of("--base-dir", "/data", "--model-name", "M", "--wandb-run-name", "r").options)
    assert (sync["hf_checkpoint"], sync["ref_load"]) == ("zai-org/M", "/data/M_torch_dist")
    assert sync["prometheus_run_name"] == "r"
    overlapped = flat(options_of("--model-name", "M", "--ref-load", "/r", script="async").options)
    assert (overlapped["hf_checkpoint"], overlapped["ref_load"]) == ("/models/zai-org/M", "/r")


def test_files_of_a_cluster_run_become_absolute_and_hub_ids_stay(
    options_of: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    values = flat(options_of("--save-dir", "s/", "--prompt-data", "p.jsonl", "--hf-checkpoint", "org/model").options)
    assert values["save_dir"] == str(tmp_path / "s")
    assert values["prompt_data"] == str(tmp_path / "p.jsonl")
    assert values["hf_checkpoint"] == "org/model"
    (tmp_path / "org" / "model").mkdir(parents=True)
    assert flat(options_of("--hf-checkpoint", "org/model").options)["hf_checkpoint"] == str(tmp_path / "org" / "model")


@pytest.mark.parametrize("script", SCRIPTS.values())
def test_help_imports_nothing_heavy(script: str) -> None:
    code = (
        "import runpy, sys\n"
        f"sys.argv = [{script!r}, '--help']\n"
        "try:\n    runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "except SystemExit as stop:\n    assert stop.code in (0, None)\n"
        "heavy = {'torch', 'ray', 'miles', 'harbor', 'transformers', 'litellm', 'wandb'} & set(sys.modules)\n"
        "print('HEAVY', sorted(heavy))\n"
    )
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert answer.stdout.rstrip().endswith("HEAVY []")
    assert "--session-server-external-host" in answer.stdout

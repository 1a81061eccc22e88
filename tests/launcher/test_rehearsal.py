"""Saved plans read back: what a rehearsal takes from them, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.local_run import build_config
from launcher.resolve import Resolved
from launcher.saved_plan import read_plan
from local_engine.config import SessionAddress
from tests.launcher.miles.launchers import SCRIPTS

Save = Callable[..., Path]


@pytest.fixture
def save(launch: Callable[..., Any], tmp_path: Path) -> Save:
    """The plan that `--dry-run --format json` of a launcher prints, with parts of it changed."""

    def write(*flags: str, script: str = "sync", changed: dict[str, Any] | None = None, **environment: str) -> Path:
        answer = launch("--dry-run", "--format", "json", *flags, script=script, **environment)
        assert answer.code == 0, answer.err
        path = tmp_path / "plan.json"
        path.write_text(json.dumps(json.loads(answer.out) | (changed or {})))
        return path

    return write


def config_of(options_of: Callable[..., Resolved[Any]], plan: Path, *flags: str, script: str = "sync") -> Any:
    resolved = options_of("--engine", "local", "--from-plan", str(plan), *flags, script=script)
    return build_config(resolved, "id", {})[0]


@pytest.mark.parametrize("script", SCRIPTS)
def test_data_agents_addresses_and_limits_are_the_plans(
    script: str, save: Save, options_of: Callable[..., Resolved[Any]]
) -> None:
    plan = save(
        *("--prompt-data", "/d/rows.jsonl", "--harbor-tasks-dir", "/d/tasks", "--max-consecutive-discards", "9"),
        *("--agent-server-url", "http://agents:11000", "--agent-model-name", "policy", "--miles-host-ip", "0.0.0.0"),
        *("--session-server-external-host", "trainer.example", "--session-server-port", "40000"),
        script=script, AGENT_TRIAL_TIMEOUT="9000", AGENT_SERVER_TOKEN_FILE="/keys/agent",
    )  # fmt: skip
    config = config_of(options_of, plan, script=script)
    assert config.prompt_data == Path("/d/rows.jsonl")
    assert config.harbor_tasks_dir is None  # not on this machine, so the agent server is asked
    assert (config.agent_server_url, config.agent_model_name) == ("http://agents:11000", "policy")
    assert config.session_address == SessionAddress("0.0.0.0", 40000, "trainer.example")
    assert (config.max_consecutive_discards, config.agent_timeout) == (9, 9000)
    assert config.extra_env["AGENT_TRIAL_TIMEOUT"] == "9000"
    assert config.extra_env["AGENT_SERVER_TOKEN_FILE"] == "/keys/agent"
    assert not {"PYTHONPATH", "CUDA_DEVICE_MAX_CONNECTIONS", "MASTER_ADDR"} & config.extra_env.keys()
    sizes = (config.rollout_batch_size, config.n_samples_per_prompt, config.global_batch_size)
    assert sizes == ((32, 4, 32) if script == "async" else (4, 8, 32))
    assert config.max_concurrent == sizes[0] * sizes[1]
    assert (config.max_seq_len, config.rollout_max_response_len) == (8192, 256)
    assert config.temperature == 0.8
    assert (config.asynchrony is not None) == (script == "async")


def test_the_adapter_and_the_asynchrony_are_the_plans(save: Save, options_of: Callable[..., Resolved[Any]]) -> None:
    plan = save("--lora-rank", "4", "--lora-alpha", "6", "--target-modules", "o_proj", "kv_b_proj", script="lora")
    config = config_of(options_of, plan, script="lora")
    assert (config.lora_rank, config.lora_alpha, config.target_modules) == (4, 6, ("o_proj", "kv_b_proj"))
    assert config.extra_env["SANDBOX_AUTO_DELETE_MINUTES"] == "1440"

    plan = save("--max-weight-staleness", "3", "--use-tis", "--tis-clip", "5", script="async")
    asynchrony = config_of(options_of, plan, script="async").asynchrony
    assert (asynchrony.max_weight_staleness, asynchrony.tis_clip) == (3, 5.0)
    assert asynchrony.pause_generation_mode == "in_place"
    assert config_of(options_of, save(script="async"), script="async").asynchrony.tis_clip is None


def test_the_command_line_is_stronger_than_the_plan_and_the_plan_than_the_environment(
    save: Save, options_of: Callable[..., Resolved[Any]]
) -> None:
    plan = save("--agent-server-url", "http://agents:11000", "--extra-env-vars", "A=1", "B=2")
    flags = ("--num-rollout", "3", "--session-server-external-host", "other.example", "--extra-env-vars", "B=3")
    resolved = options_of("--engine", "local", "--from-plan", str(plan), *flags, AGENT_SERVER_URL="http://elsewhere:1")
    config, _ = build_config(resolved, "id", {})
    assert config.agent_server_url == "http://agents:11000"
    assert config.num_rollout == 3
    assert config.session_address.host == "other.example"
    assert (config.extra_env["A"], config.extra_env["B"]) == ("1", "3")


def test_a_session_is_as_long_as_plan_model_and_command_line_allow(
    save: Save, options_of: Callable[..., Resolved[Any]], plan_of: Callable[..., Any]
) -> None:
    plan = save()
    shorter = config_of(options_of, plan, "--max-seq-len", "400")
    assert (shorter.max_seq_len, shorter.rollout_max_response_len) == (400, 100)
    content = json.loads(plan.read_text())
    place = content["arguments"].index("--max-seq-len")
    del content["arguments"][place : place + 2]  # as for a Miles that has no such flag
    plan.write_text(json.dumps(content))
    assert config_of(options_of, plan).max_seq_len == 8192
    assert "--max-seq-len is 8192 instead of without a bound" in " ".join(plan_of("--from-plan", str(plan))["notes"])


def test_a_plan_without_staleness_needs_a_bound_of_its_own_here(
    save: Save, launch: Callable[..., Any], options_of: Callable[..., Resolved[Any]]
) -> None:
    plan = save("--max-weight-staleness", "0", script="async")
    refused = launch("--engine", "local", "--dry-run", "--from-plan", str(plan), script="async")
    assert refused.code == 2 and "pass 1 or more" in refused.err
    config = config_of(options_of, plan, "--max-weight-staleness", "2", script="async")
    assert config.asynchrony.max_weight_staleness == 2


def test_a_launcher_of_ones_own_rehearses_its_own_plans(save: Save) -> None:
    plan = save(changed={"launcher": "run_mine.py"})
    assert read_plan(str(plan), "run_mine.py").launcher == "run_mine.py"


def test_what_is_replaced_and_what_has_no_counterpart_is_named(save: Save, plan_of: Callable[..., Any]) -> None:
    rehearsed = plan_of("--from-plan", str(save("--num-rollout", "200")), "--max-seq-len", "4096")
    notes = " ".join(rehearsed["notes"])
    assert "--num-rollout is 1 instead of 200" in notes
    assert "--hf-checkpoint is SmolLM2-135M-Instruct instead of zai-org/GLM-4.7-Flash" in notes
    assert "--max-seq-len is" not in notes
    assert "on port 30000 stands for 32" in notes
    unused = rehearsed["without_counterpart"]
    assert {"--tensor-model-parallel-size", "--ref-load", "--kl-loss-coef"} <= set(unused["arguments"])
    assert "PYTHONPATH" in unused["variables"]
    assert f"arguments {len(unused['arguments'])}, of its variables {len(unused['variables'])};" in notes
    assert max(map(len, rehearsed["notes"])) < 400


def test_the_printed_arguments_rehearse_the_same_again(
    save: Save, options_of: Callable[..., Resolved[Any]], plan_of: Callable[..., Any]
) -> None:
    plan = save("--router-external-host", "trainer.example")
    arguments = plan_of("--from-plan", str(plan), "--save-dir", "s")["arguments"]
    again, _ = build_config(options_of(*arguments), "id", {})
    assert again == config_of(options_of, plan, "--save-dir", "s")


def test_a_secret_whose_value_the_plan_hides_comes_from_the_environment(save: Save, launch: Callable[..., Any]) -> None:
    plan = save()
    content = json.loads(plan.read_text())
    content["environment"]["SOME_TOKEN"] = "***"
    plan.write_text(json.dumps(content))
    flags = ("--engine", "local", "--dry-run", "--format", "json", "--from-plan", str(plan))
    refused = launch(*flags)
    assert refused.code == 2 and "SOME_TOKEN" in refused.err
    answer = launch(*flags, SOME_TOKEN="canary")
    assert answer.code == 0
    assert "canary" not in answer.out and "***" not in answer.out


def test_a_value_that_the_plan_hides_under_another_name_is_that_of_the_environment(
    save: Save, options_of: Callable[..., Resolved[Any]]
) -> None:
    """A proxy with a password in its URL is hidden as well."""
    plan = save()
    content = json.loads(plan.read_text())
    content["environment"]["HTTP_PROXY"] = "***"
    plan.write_text(json.dumps(content))
    resolved = options_of("--engine", "local", "--from-plan", str(plan), HTTP_PROXY="http://u:p@proxy:3128")
    assert "HTTP_PROXY" not in build_config(resolved, "id", {})[0].extra_env


@pytest.mark.parametrize("script", ["async", "lora"])
def test_a_plan_of_another_launcher_is_refused_with_the_one_that_takes_it(
    script: str, save: Save, launch: Callable[..., Any]
) -> None:
    answer = launch("--engine", "local", "--dry-run", "--from-plan", str(save(script=script)))
    assert answer.code == 2
    assert f"python {SCRIPTS[script]} --engine local --from-plan" in answer.err


def test_a_plan_without_the_engine_that_rehearses_it_is_refused_with_that_engine(
    save: Save, launch: Callable[..., Any]
) -> None:
    answer = launch("--dry-run", "--from-plan", str(save()))
    assert answer.code == 2
    assert "--from-plan is not an option of --engine miles here; add --engine local" in answer.err


DAMAGE: dict[str, dict[str, Any]] = {
    "of something else": {"launcher": "train.sh"},
    "of this machine": {"engine": "local"},
    "arguments are missing": {"arguments": None},
    "an argument is no text": {"arguments": ["--num-rollout", 3]},
    "no arguments": {"arguments": []},
    "environment is missing": {"environment": None},
    "environment lacks the agent server": {"environment": {}},
    "ports are missing": {"ports": {}},
    "ports are none": {"ports": {"session_server": 0, "session_server_last": 99999}},
    "ports are the system's": {"ports": {"session_server": 22, "session_server_last": 22}},
    "a port is no number": {"ports": {"session_server": True, "session_server_last": True}},
    "the run's name acts on a terminal": {"run_id": "\x1b[2J"},
    "the run's name is a book": {"run_id": "x" * 1_000_000},
    "an argument is none of a process": {"arguments": ["--prompt-data", "/d/\0"]},
    "a variable is none of a process": {"environment": {"A": "\ud800"}},
    "a variable has no name": {"environment": {"A B": "1"}},
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_foreign_or_old_plan_is_one_clear_error(damage: str, save: Save, launch: Callable[..., Any]) -> None:
    plan = save(changed=DAMAGE[damage])
    answer = launch("--engine", "local", "--dry-run", "--from-plan", str(plan))
    assert answer.code == 2
    assert f"--from-plan {plan}" in answer.err and answer.err.count("\n") == 1


@pytest.mark.parametrize("value", ["", " "])
@pytest.mark.parametrize("name", ["--prompt-data", "--hf-checkpoint"])
def test_an_empty_argument_of_a_plan_is_refused_by_name(
    name: str, value: str, save: Save, launch: Callable[..., Any]
) -> None:
    plan = save("--prompt-data", "/d/rows.jsonl")
    content = json.loads(plan.read_text())
    content["arguments"][content["arguments"].index(name) + 1] = value
    plan.write_text(json.dumps(content))
    answer = launch("--engine", "local", "--dry-run", "--from-plan", str(plan))
    assert answer.code == 2
    assert f"its arguments have no {name} with a value" in answer.err


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"null", b"[" * 10_000])
def test_a_file_that_is_no_json_object_is_one_clear_error(
    content: bytes, launch: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(content)
    for given in (path, tmp_path / "missing.json", tmp_path):
        answer = launch("--engine", "local", "--dry-run", "--from-plan", str(given))
        assert answer.code == 2
        assert f"--from-plan {given}" in answer.err and answer.err.count("\n") == 1


def test_a_cluster_run_takes_no_plan(save: Save, launch: Callable[..., Any]) -> None:
    answer = launch("--dry-run", "--from-plan", str(save()))
    assert answer.code == 2 and "--from-plan" in answer.err

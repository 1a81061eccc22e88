from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

LOCAL = ("--engine", "local")


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (
            "--rollout-batch-size 4 --n-samples-per-prompt 8 --global-batch-size 24",
            "global batch 24 is not 4 prompts x 8 samples = 32; pass --global-batch-size 32",
        ),
        ("--n-samples-per-prompt 1", "a GRPO group of one has no advantage"),
        ("--num-rollout 0", "--num-rollout 0: must be a positive number"),
        ("--lr nan", "--lr nan"),
        ("--rollout-max-response-len 2048", "--max-seq-len 2048"),
        ("--lora-dropout 1", "--lora-dropout 1.0"),
        ("--target-modules all-linear q_proj", "all-linear is every module already; leave out q_proj"),
        ("--lora-rank 10000000000", "--lora-rank 10000000000: must be"),
        ("--eps-clip-high 0.1", "at least --eps-clip 0.2"),
        ("--threads -1", "--threads -1"),
        ("--families sing", "no family sing"),
        ("--families copy,copy", "names one twice"),
        ("--full-finetune --lora-rank 8", "--lora-rank has no effect"),
        ("--device cpu --num-gpus-per-node 1", "contradict each other"),
        ("--agent-name oracle", "--agent-name oracle"),
        ("--resume", "--resume needs --save-dir"),
        ("--save-traces-dir disabled", "leave it out"),
        ("--format json", "add --dry-run"),
        ("--dry-run --preflight-only", "contradict each other"),
        ("--wandb-team t", "need --wandb-project"),
        ("--prompt-data rows.jsonl", "without --harbor-tasks-dir"),
        ("--harbor-tasks-dir tasks", "download_and_process_data.py"),
        ("--agent-server-url http://a:1", "--prompt-data"),
        ("--prompt-data r --harbor-tasks-dir t --families copy", "--families is for tasks made here"),
        ("--agent-server-url agent:1 --prompt-data r", "is not a URL"),
        ("--agent-server-url ftp://agent:1 --prompt-data r", "is not a URL"),
        ("--agent-server-url http://agent:99999 --prompt-data r", "is not a URL"),
    ],
)
def test_options_that_cannot_work_are_refused_with_the_way_out(
    launch: Callable[..., Any], flags: str, text: str
) -> None:
    answer = launch(*LOCAL, *flags.split())
    assert (answer.code, answer.out) == (2, "")
    assert text in answer.err


def test_batches_of_several_whole_steps_are_allowed_and_named(plan_of: Callable[..., Any]) -> None:
    plan = plan_of("--rollout-batch-size", "4", "--global-batch-size", "16")
    assert any(note.startswith("2 optimizer steps a rollout") for note in plan["notes"])


@pytest.mark.parametrize(
    ("items", "text"),
    [
        (("A=b=c D=e f",), "'f' has no '='"),
        (("DAYTONA_API_KEY=canary",), "DAYTONA_API_KEY_FILE=path"),
        (('{"HF_TOKEN": "canary"}',), "HF_TOKEN_FILE=path"),
        (("my_secret=canary",), "my_secret_FILE=path"),
        (("P=http://u:canary@h",), "URL with a user or password"),
        (("P=" + "x" * 300_000 + "://u:canary@h",), "URL with a user or password"),
        (("1A=b",), "'1A' is not a name"),
        (("A=1", "A=2"), "given twice"),
        (('{"A": 1, "A": 2}',), "given twice"),
        (('{"A": null}',), "neither text nor a number"),
        (('{"A"',), "not valid JSON"),
        (("AGENT_SERVER_URL=http://a:1",), "--agent-server-url"),
    ],
)
def test_extra_environment_is_refused_by_name_without_the_value(
    launch: Callable[..., Any], items: tuple[str, ...], text: str
) -> None:
    answer = launch(*LOCAL, "--extra-env-vars", *items)
    assert answer.code == 2
    assert text in answer.err
    assert "canary" not in answer.err


@pytest.mark.parametrize(
    ("items", "variables"),
    [
        (("A=b C=d=e",), {"A": "b", "C": "d=e"}),
        (("A=b", "C=d=e"), {"A": "b", "C": "d=e"}),
        (('{"A": "two words", "N": 3}',), {"A": "two words", "N": "3"}),
        (("A=",), {"A": ""}),
        (("DAYTONA_API_KEY_FILE=/run/key",), {"DAYTONA_API_KEY_FILE": "/run/key"}),
    ],
)
def test_extra_environment_keeps_further_equal_signs(
    plan_of: Callable[..., Any], items: tuple[str, ...], variables: dict[str, str]
) -> None:
    environment = plan_of("--extra-env-vars", *items)["environment"]
    assert {name: environment[name] for name in variables} == variables


def test_a_url_with_credentials_is_refused_without_repeating_them(launch: Callable[..., Any]) -> None:
    for argv, environment in (
        (("--agent-server-url", "http://u:canary@h:1"), {}),
        ((), {"AGENT_SERVER_URL": "http://u:canary@h:1"}),
    ):
        answer = launch(*LOCAL, *argv, **environment)
        assert answer.code == 2
        assert "canary" not in answer.err

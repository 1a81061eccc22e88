"""--argument-changes: every difference has a reason and is told, and nothing has two answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from launcher.cli import own_flags
from launcher.errors import OptionsError
from launcher.miles.argument_changes import read_changes
from launcher.scripts import ROOT
from tests.launcher.miles.launchers import launcher

ARGUMENTS = ("--colocate", "--moe-grouped-gemm", "--lr", "1e-6", "--attention-backend", "flash")


def written(tmp_path: Path, content: Any, name: str = "changes.json") -> str:
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def test_without_a_file_nothing_changes() -> None:
    assert read_changes((), frozenset()).applied(ARGUMENTS) == (ARGUMENTS, [])


def test_flags_are_left_out_replaced_in_their_place_and_added(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        {
            "leave_out": {"--moe-grouped-gemm": "no such kernel"},
            "set": {
                "--attention-backend": {"values": ["unfused"], "reason": "no flash"},
                "--spec": {"values": ["mine", "get"], "reason": "own layers"},
                "--quick": {"values": [], "reason": "a switch"},
            },
        },
    )
    arguments, notes = read_changes((path,), frozenset()).applied(ARGUMENTS)
    assert arguments == (
        *("--colocate", "--lr", "1e-6", "--attention-backend", "unfused"),
        *("--spec", "mine", "get", "--quick"),
    )
    assert notes == [
        "--moe-grouped-gemm is left out: no such kernel",
        "--attention-backend flash becomes --attention-backend unfused: no flash",
        "--spec mine get is added: own layers",
        "--quick is added: a switch",
    ]


def test_what_a_plan_has_already_is_no_difference(tmp_path: Path) -> None:
    content = {"leave_out": {"--absent": "x"}, "set": {"--lr": {"values": ["1e-6"], "reason": "x"}}}
    assert read_changes((written(tmp_path, content),), frozenset()).applied(ARGUMENTS) == (ARGUMENTS, [])


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("[]", "JSON object"),
        ({"remove": {}}, "neither leave_out nor set"),
        ({"leave_out": ["--colocate"]}, "leave_out must be an object"),
        ({"leave_out": {"--colocate": " "}}, "say why --colocate differs"),
        ({"leave_out": {"colocate": "x"}}, "is no flag"),
        ({"leave_out": {"--a=b": "x"}}, "is no flag"),
        ({"leave_out": {"--num-rollout": "x"}}, "--num-rollout is an option of this launcher"),
        ({"leave_out": {"--": "x"}}, "is no flag"),
        ({"leave_out": {"--a b": "x"}}, "is no flag"),
        ({"leave_out": {"--save": "x"}}, "--save follows from --save-dir"),
        ({"leave_out": {"--custom-rm-path": "x"}}, "--custom-rm-path follows from the functions of this repository"),
        ({"set": {"--load": {"values": ["/x"], "reason": "x"}}}, "--load follows from --resume and --load-dir"),
        ({"set": {"--wandb-key": {"values": ["canary"], "reason": "x"}}}, "--wandb-key takes a secret"),
        ({"set": {"--x": {"values": ["a\0b"], "reason": "x"}}}, "no zero byte"),
        ({"set": {"--x": {"values": ["\ud800"], "reason": "x"}}}, "must be strings"),
        ({"set": {"--x": {"values": ["A_TOKEN=canary"], "reason": "x"}}}, "A_TOKEN takes a secret"),
        ({"leave_out": {"--spec": "http://u:p@h/"}}, "user or password"),
        ({"set": {"--spec": ["a"]}}, "needs"),
        ({"set": {"--spec": {"values": ["a"]}}}, "needs"),
        ({"set": {"--spec": {"values": "a", "reason": "x"}}}, "needs"),
        ({"set": {"--spec": {"values": ["--a"], "reason": "x"}}}, "do not begin with --"),
        ({"set": {"--spec": {"values": [1], "reason": "x"}}}, "must be strings"),
        ({"set": {"--spec": {"values": ["http://u:p@h/"], "reason": "x"}}}, "user or password"),
        ({"leave_out": {"--spec": "x"}, "set": {"--spec": {"values": [], "reason": "x"}}}, "named twice"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_name(tmp_path: Path, content: Any, named: str) -> None:
    with pytest.raises(OptionsError, match=named):
        read_changes((written(tmp_path, content),), own_flags(launcher("sync").options))


@pytest.mark.parametrize(
    "content",
    [
        {"leave_out": {"--wandb-key=canary": "x"}},
        {"leave_out": {"--wandb-key canary": "x"}},
        {"leave_out": {"--wandb-key:canary": "x"}},
        {"leave_out": {"http://u:canary@h": "x"}},
        {"--wandb-key=canary": {}},
        {"set": {"--wandb-key=canary": {"values": [], "reason": "x"}}},
        {"set": {"WANDB_API_KEY=canary": ["x"]}},
    ],
)
def test_a_secret_written_behind_a_flag_is_not_repeated(tmp_path: Path, content: Any) -> None:
    with pytest.raises(OptionsError, match=r"is no flag|is neither") as refused:
        read_changes((written(tmp_path, content),), frozenset())
    assert "canary" not in str(refused.value)


def test_two_files_may_not_name_one_flag(tmp_path: Path) -> None:
    first = written(tmp_path, {"leave_out": {"--a": "x"}}, "first.json")
    second = written(tmp_path, {"set": {"--a": {"values": [], "reason": "x"}}}, "second.json")
    with pytest.raises(OptionsError, match=r"second\.json: --a is named twice"):
        read_changes((first, second), frozenset())


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match="is not there"):
        read_changes((str(tmp_path / "changes.json"),), frozenset())


def test_the_files_of_the_gpu_run_can_be_used_together() -> None:
    folder = ROOT / "benchmarks" / "gpu"
    for name, others in (
        ("sync", ("no_offloaded_optimizer.json", "no_offload.json")),
        ("sync", ("no_offloaded_optimizer.json", "split.json")),
        ("async", ()),
    ):
        paths = [str(folder / file) for file in ("no_transformer_engine.json", *others)]
        changes = read_changes(paths, own_flags(launcher(name).options))
        assert changes.leave_out and changes.set

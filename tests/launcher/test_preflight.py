from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher import local_preflight
from launcher.errors import PreflightError
from launcher.local_memory import SMOLLM2_135M
from launcher.preflight import Check, Status, failure, first_three, ok, run_checks
from launcher.resolve import Resolved
from local_engine.manifest import TRACKER, write_manifest
from tests.launcher.checks.http_answers import http_answers

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("health", "expected"),
    [
        ({"agent_timeout": 60, "max_concurrent": 48}, Status.OK),
        ({"agent_timeout": 600, "max_concurrent": 48}, Status.WARNING),
        ({"agent_timeout": 60, "max_concurrent": 47}, Status.FAILURE),
        ({"agent_timeout": 9000, "max_concurrent": 48}, Status.FAILURE),
    ],
)
def test_a_given_agent_server_is_held_against_what_was_asked_for(health: dict[str, Any], expected: Status) -> None:
    with http_answers({"/health": (200, json.dumps(health))}) as answers:
        findings = local_preflight.check_given_agent_server(answers.url, 120.0, 48, {})
    assert findings[0].status is expected


def test_a_given_agent_server_that_is_not_there_fails() -> None:
    with http_answers({}) as answers:
        pass
    (finding,) = local_preflight.check_given_agent_server(answers.url, 120.0, 48, {})
    assert finding.status is Status.FAILURE
    assert answers.url in finding.sentence


def test_a_model_folder_without_config_fails(tmp_path: Path) -> None:
    assert local_preflight.check_model(str(tmp_path)).status is Status.FAILURE
    assert local_preflight.check_model(str(tmp_path / "none")).status is Status.FAILURE
    (tmp_path / "config.json").write_text("{}")
    assert local_preflight.check_model(str(tmp_path)).status is Status.OK
    assert local_preflight.check_model(None).status is Status.OK


def test_a_model_that_is_neither_a_folder_nor_a_hub_id_is_found_before_the_hub_is_asked() -> None:
    finding = local_preflight.check_model("no-such-model")
    assert finding.status is Status.FAILURE
    assert "no-such-model is no folder here" in finding.sentence
    assert local_preflight.check_model("owner/model").status is Status.OK


def test_a_damaged_checkpoint_is_found_before_a_resume(tmp_path: Path) -> None:
    for number in range(2):
        folder = tmp_path / f"iter_{number:07d}"
        (folder / "adapter").mkdir(parents=True)
        for name in ("trainer.pt", "adapter/adapter_model.safetensors"):
            (folder / name).write_bytes(bytes(1000))
        write_manifest(folder)
    (tmp_path / TRACKER).write_text("1")
    assert local_preflight.check_start(tmp_path).status is Status.OK
    (tmp_path / "iter_0000001" / "adapter" / "adapter_model.safetensors").write_bytes(bytes(900))
    finding = local_preflight.check_start(tmp_path)
    assert finding.status is Status.FAILURE
    assert "adapter_model.safetensors: it has 900 bytes, 1000 were written" in finding.sentence
    assert f"write 0 into {tmp_path / TRACKER} and resume" in finding.way_out


def test_a_preflight_leaves_pytorch_alone() -> None:
    """OpenMP reads its settings when PyTorch is loaded, and a run sets them after its preflight."""
    code = "import sys, launcher.local_preflight; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_all_checks_are_reported_in_their_order_and_run_side_by_side() -> None:
    together = threading.Barrier(2, timeout=10)

    def bad() -> Any:
        together.wait()
        return failure("first", "is wrong", "mend it")

    def good() -> Any:
        together.wait()
        return [ok("second", "is right"), ok("third", "is right")]

    findings = run_checks([Check("bad", bad), Check("good", good)])
    assert [finding.check for finding in findings] == ["first", "second", "third"]


def test_a_check_that_does_not_end_is_reported_by_name_beside_the_findings_of_the_others() -> None:
    released = threading.Event()
    stuck = Check("stuck", lambda: ok("stuck", f"{released.wait()}"), limit=0.2)
    late, fine = run_checks([stuck, Check("fine", lambda: ok("fine", "is right"))])
    released.set()
    assert late.status is Status.FAILURE and late.check == "stuck" and "did not end within 0.2 s" in late.sentence
    assert fine.status is Status.OK


def test_what_ends_a_launcher_inside_a_check_is_a_finding_beside_the_others() -> None:
    def unreachable() -> Any:
        raise PreflightError("no Ray job server at http://h:8265; start the cluster; or correct --ray-address")

    lost, fine = run_checks([Check("Ray cluster", unreachable), Check("fine", lambda: ok("fine", "is right"))])
    assert lost == failure(
        "Ray cluster", "no Ray job server at http://h:8265", "start the cluster; or correct --ray-address"
    )
    assert fine.status is Status.OK


def test_a_check_with_something_to_stop_is_told_when_the_others_end_early() -> None:
    def broken() -> Any:
        raise ZeroDivisionError

    interrupted, told = threading.Event(), threading.Event()

    def waits() -> Any:
        interrupted.wait()
        told.set()
        return []

    with pytest.raises(ZeroDivisionError):
        run_checks([Check("broken", broken), Check("waits", waits, 600, interrupted)])
    assert told.is_set()


def test_ctrl_c_ends_checks_that_hang() -> None:
    code = (
        "import threading\nfrom launcher.preflight import Check, run_checks\n"
        "def hang():\n    print('hangs', flush=True)\n    threading.Event().wait()\n"
        "run_checks([Check('stuck', hang, 600)])\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"hangs\n"
    process.send_signal(signal.SIGINT)
    assert b"KeyboardInterrupt" in process.communicate(timeout=60)[1]


def test_a_long_list_of_names_is_cut() -> None:
    assert first_three(["a", "b", "c"]) == "a, b, c"
    assert first_three(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"


def test_a_failed_check_ends_with_its_own_exit_code_and_nothing_written(
    launch: Callable[..., Any], tmp_path: Path
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"prompt": "p", "metadata": {"instance_id": "a", "agent_name": "shell"}}))
    answer = launch(
        *("--engine", "local", "--save-dir", str(tmp_path / "s"), "--preflight-only"),
        *("--prompt-data", str(rows), "--harbor-tasks-dir", str(tmp_path / "none")),
    )
    assert answer.code == 3
    assert "failure  prompt data" in answer.err
    assert not (tmp_path / "s").exists()


def test_the_default_model_has_the_size_of_its_name() -> None:
    assert SMOLLM2_135M.parameters == 134_515_008


def test_a_finding_names_the_variable_that_set_the_option_it_is_about(
    launch: Callable[..., Any], tmp_path: Path
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"prompt": "p", "metadata": {"instance_id": "a"}}))
    flags = ("--engine", "local", "--preflight-only", "--prompt-data", str(rows), "--rollout-batch-size", "1")
    flags += ("--global-batch-size", "8", "--save-dir", str(tmp_path / "run"))
    answer = launch(*flags, HARBOR_TASKS_DIR="/nosuch")
    assert answer.code == 3
    assert "--harbor-tasks-dir /nosuch is not a folder" in answer.err
    assert "(from HARBOR_TASKS_DIR in the environment; unset it if not meant)" in answer.err
    answer = launch(*flags, "--harbor-tasks-dir", "/nosuch", HARBOR_TASKS_DIR="/other")
    assert answer.code == 3 and "HARBOR_TASKS_DIR" not in answer.err


def test_only_what_is_amiss_and_names_the_option_gets_its_variable(options_of: Callable[..., Resolved[Any]]) -> None:
    resolved = options_of(AGENT_SERVER_URL="http://agents:11000")
    fine, other = ok("a", "--agent-server-url is right"), failure("b", "is wrong", "correct --agent-server-urls")
    wrong = failure("c", "does not answer", "correct --agent-server-url")
    assert resolved.with_origins([fine, other]) == [fine, other]
    (named,) = resolved.with_origins([wrong])
    assert named.way_out.startswith(wrong.way_out) and "from AGENT_SERVER_URL in the environment" in named.way_out

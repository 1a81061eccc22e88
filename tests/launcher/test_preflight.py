from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from launcher import local_preflight as checks
from launcher.local_memory import SMOLLM2_135M
from launcher.preflight import Status, failure, ok, run_checks


@contextmanager
def server(status: int, body: str, token: str | None = None) -> Iterator[str]:
    """Stand-in for an agent server: one answer to every GET that carries the token, over a real socket."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            admitted = token is None or self.headers.get("Authorization") == f"Bearer {token}"
            self.send_response(status if admitted else 401)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None: ...

    listener = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.server_port}"
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()


@pytest.fixture
def rows(tmp_path: Path) -> Callable[..., Path]:
    def write(*ids: str) -> Path:
        path = tmp_path / "rows.jsonl"
        lines = [json.dumps({"prompt": "p", "metadata": {"instance_id": i, "agent_name": "shell"}}) for i in ids]
        path.write_text("".join(f"{line}\n" for line in lines))
        return path

    return write


def task(root: Path, name: str) -> None:
    (root / name).mkdir(parents=True)
    (root / name / "task.toml").write_text("")


def test_prompts_with_their_tasks_pass(rows: Callable[..., Path], tmp_path: Path) -> None:
    for name in ("a", "b"):
        task(tmp_path / "tasks", name)
    assert checks.check_prompts(rows("a", "b"), tmp_path / "tasks", 2).status is Status.OK


def test_fewer_prompts_than_a_batch_fail_with_both_numbers(rows: Callable[..., Path]) -> None:
    finding = checks.check_prompts(rows("a", "b", "c"), None, 4)
    assert finding.status is Status.FAILURE
    assert "3 prompts, a batch takes 4" in finding.sentence
    assert "--rollout-batch-size 3" in finding.way_out


def test_prompts_without_their_tasks_fail_by_name(rows: Callable[..., Path], tmp_path: Path) -> None:
    task(tmp_path / "tasks", "a")
    finding = checks.check_prompts(rows("a", "lost"), tmp_path / "tasks", 1)
    assert finding.status is Status.FAILURE
    assert "1 of 2 tasks" in finding.sentence and "lost" in finding.sentence


def test_a_missing_task_folder_fails(rows: Callable[..., Path], tmp_path: Path) -> None:
    finding = checks.check_prompts(rows("a"), tmp_path / "none", 1)
    assert finding.status is Status.FAILURE
    assert "not a folder" in finding.sentence


def test_a_bad_prompt_file_fails(tmp_path: Path) -> None:
    assert checks.check_prompts(tmp_path / "none.jsonl", None, 1).status is Status.FAILURE
    (tmp_path / "bad.jsonl").write_text("{\n")
    assert checks.check_prompts(tmp_path / "bad.jsonl", None, 1).status is Status.FAILURE


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, '{"status": "ok", "agent_timeout": 60}', Status.OK),
        (200, '{"status": "ok", "agent_timeout": 600}', Status.WARNING),
        (200, "hello", Status.WARNING),
        (404, "", Status.WARNING),
        (500, "", Status.FAILURE),
    ],
)
def test_the_agent_server_is_asked(status: int, body: str, expected: Status) -> None:
    with server(status, body) as url:
        assert checks.check_agent_server(url, 120.0, 48, {}).status is expected


@pytest.mark.parametrize(
    ("health", "environment", "words"),
    [
        ('{"agent_timeout": 5400}', {"AGENT_TRIAL_TIMEOUT": "3600"}, ("5400", "3600")),
        ('{"agent_timeout": 5400, "trial_timeout": 6960}', {"AGENT_TRIAL_TIMEOUT": "6000"}, ("5400", "6960", "6000")),
        ('{"agent_timeout": 5400, "trial_timeout": 6960}', {"AGENT_TRIAL_TIMEOUT": "7200"}, None),
        ('{"agent_timeout": 5400}', {"AGENT_TRIAL_TIMEOUT": "soon"}, None),
        ('{"agent_timeout": 60, "trial_timeout": 9000}', {}, ("9000", "7200")),
        ('{"max_concurrent": 47}', {}, ("47", "48")),
        ('{"max_concurrent": 48}', {}, None),
    ],
)
def test_an_agent_server_that_is_too_slow_or_too_small_for_the_run_fails_with_the_numbers(
    health: str, environment: dict[str, str], words: tuple[str, ...] | None
) -> None:
    with server(200, health) as url:
        finding = checks.check_agent_server(url, 6000.0, 48, environment)
    assert finding.status is (Status.OK if words is None else Status.FAILURE)
    assert all(word in finding.sentence for word in words or ())


@pytest.mark.parametrize(
    ("content", "expected"),
    [("tok\n", Status.OK), ("not-it\n", Status.FAILURE), ("", Status.FAILURE), (None, Status.FAILURE)],
)
def test_an_agent_server_with_a_token_is_asked_with_it(tmp_path: Path, content: str | None, expected: Status) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
    with server(200, "{}", token="tok") as url:
        finding = checks.check_agent_server(url, 120.0, 48, {"AGENT_SERVER_TOKEN_FILE": str(file)})
    assert finding.status is expected
    assert "not-it" not in finding.sentence


def test_an_agent_server_that_is_not_there_fails() -> None:
    with server(200, "{}") as url:
        pass
    finding = checks.check_agent_server(url, 120.0, 48, {})
    assert finding.status is Status.FAILURE
    assert url in finding.sentence


def test_a_model_folder_without_config_fails(tmp_path: Path) -> None:
    assert checks.check_model(str(tmp_path)).status is Status.FAILURE
    assert checks.check_model(str(tmp_path / "none")).status is Status.FAILURE
    (tmp_path / "config.json").write_text("{}")
    assert checks.check_model(str(tmp_path)).status is Status.OK
    assert checks.check_model(None).status is Status.OK


def test_a_save_folder_below_a_file_fails(tmp_path: Path) -> None:
    assert checks.check_writable("save folder", tmp_path / "new" / "run", "--save-dir").status is Status.OK
    refused = checks.check_writable("traces", Path("/proc/none"), "--save-traces-dir")
    assert refused.status is Status.FAILURE and "--save-traces-dir" in str(refused)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_too_small_for_the_checkpoints_fails(tmp_path: Path) -> None:
    assert checks.check_disk(tmp_path, 2**60).status is Status.FAILURE
    assert checks.check_disk(tmp_path, None).status is Status.WARNING


@pytest.mark.parametrize(
    ("environment", "netrc", "expected"),
    [
        ({}, None, Status.FAILURE),
        ({"WANDB_MODE": "offline"}, None, Status.OK),
        ({"WANDB_API_KEY": "canary"}, None, Status.OK),
        ({}, "machine api.wandb.ai login user password canary\n", Status.OK),
    ],
)
def test_a_wandb_key_is_looked_for_and_never_shown(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    netrc: str | None,
    expected: Status,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    if netrc is not None:
        (tmp_path / ".netrc").write_text(netrc)
        (tmp_path / ".netrc").chmod(0o600)
    finding = checks.check_wandb_key(environment)
    assert finding.status is expected
    assert "canary" not in finding.sentence + finding.way_out


def test_all_checks_are_reported_and_run_side_by_side() -> None:
    together = threading.Barrier(2, timeout=10)

    def bad() -> Any:
        together.wait()
        return failure("first", "is wrong", "mend it")

    def good() -> Any:
        together.wait()
        return ok("second", "is right")

    assert [finding.check for finding in run_checks([bad, good])] == ["first", "second"]


def test_a_failed_check_ends_with_its_own_exit_code_and_nothing_written(
    launch: Callable[..., Any], rows: Callable[..., Path], tmp_path: Path
) -> None:
    answer = launch(
        *("--engine", "local", "--save-dir", str(tmp_path / "s"), "--preflight-only"),
        *("--prompt-data", str(rows("a")), "--harbor-tasks-dir", str(tmp_path / "none")),
    )
    assert answer.code == 3
    assert "failure  prompt data" in answer.err
    assert not (tmp_path / "s").exists()


def test_the_default_model_has_the_size_of_its_name() -> None:
    assert SMOLLM2_135M.parameters == 134_515_008

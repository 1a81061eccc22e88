"""Who may call, and what a person sees: token, admin secret, warning, dashboard."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.free_port import free_port
from tests.harbor_service.harbor_model_stub import ModelStub
from tests.harbor_service.harbor_server_process import AgentServerProcess, write_task


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, tasks_dir: Path) -> Iterator[AgentServerProcess]:
    """Token `t0ken`, admin secret `s3cret`, a dashboard."""
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "token").write_text("t0ken\n")
    flags = ("--token-file", str(folder / "token"), "--dashboard-port", str(free_port()))
    process = AgentServerProcess(folder, tasks_dir, *flags, environ={"HARBOR_ADMIN_SECRET": "s3cret"})
    yield process
    process.close()


@pytest.mark.parametrize("given", [None, "Bearer wrong", "t0ken", "Bearer s3cret"])
@pytest.mark.parametrize("path", ["/run", "/tasks", "/health", "/metrics"])
def test_call_without_the_token_is_refused(guarded: AgentServerProcess, path: str, given: str | None) -> None:
    headers = {"Authorization": given} if given else {}
    method = "GET" if path in ("/health", "/metrics") else "POST"
    assert guarded.client.request(method, path, json={}, headers=headers).status_code == 401


@pytest.mark.parametrize(("given", "status"), [("t0ken", 200), ("s3cret", 200), ("wrong", 401)])
def test_flush_takes_the_token_or_the_admin_secret(guarded: AgentServerProcess, given: str, status: int) -> None:
    headers = {"Authorization": f"Bearer {given}"}
    body = {"session_server_instance_id": "nobody"}
    assert guarded.client.post("/flush", json=body, headers=headers).status_code == status


def test_call_with_the_token_is_served_and_shown(guarded: AgentServerProcess, model: ModelStub) -> None:
    guarded.client.headers["Authorization"] = "Bearer t0ken"
    assert guarded.run("mkdir-1", model.base_url).json()["reward"] == 1.0
    port = guarded.process.args[guarded.process.args.index("--dashboard-port") + 1]  # type: ignore[index,union-attr]
    page = httpx.get(f"http://127.0.0.1:{port}/")
    assert page.status_code == 200
    assert "mkdir-1" in page.text and "CommandSucceeded" in page.text
    assert httpx.get(f"http://127.0.0.1:{port}/", headers={"Host": "evil.example"}).status_code == 400
    del guarded.client.headers["Authorization"]


def test_a_changed_token_file_is_read_again_and_the_token_before_is_taken_for_a_while(
    tmp_path: Path, tasks_dir: Path
) -> None:
    def status(token: str) -> int:
        return httpx.get(f"{server.url}/health", headers={"Authorization": f"Bearer {token}"}).status_code

    file = tmp_path / "token"
    file.write_text("first")
    server = AgentServerProcess(tmp_path, tasks_dir, "--token-file", str(file))
    try:
        assert (status("first"), status("second")) == (200, 401)
        file.write_text("second")
        assert (status("first"), status("second"), status("third")) == (200, 200, 401)
        for broken in ("", "two\nlines"):
            file.write_text(broken)
            assert (status("second"), status("x")) == (200, 401), "a file being written closes no door"
        file.unlink()
        assert status("second") == 200
        (tmp_path / "new").write_text("third")
        (tmp_path / "new").rename(file)
        assert (status("first"), status("second"), status("third")) == (401, 200, 200)
        assert not any(token in server.log for token in ("first", "second", "third"))
    finally:
        server.close()


def test_secrets_are_not_in_the_log(guarded: AgentServerProcess) -> None:
    assert "t0ken" not in guarded.log and "s3cret" not in guarded.log


def test_health_and_tasks_say_what_the_server_knows(server: AgentServerProcess) -> None:
    health = server.health()
    assert health["status"] == "ok"
    assert (health["max_concurrent"], health["agent_timeout"], health["tasks"]) == (2, 4.0, 4)
    assert health["trial_timeout"] == 30 + 360 + 4 + 20  # build, setup, agent, verifier
    answer = server.client.post("/tasks", json={"instance_ids": ["mkdir-1", "nowhere", "../outside", "no-verifier"]})
    assert answer.json()["missing"] == ["nowhere", "../outside"]
    assert list(answer.json()["broken"]) == ["no-verifier"]
    assert set(answer.json()) == {"missing", "broken"}, "agents are answered for only where they are asked for"


def test_tasks_refuses_an_id_that_no_reply_could_carry(server: AgentServerProcess) -> None:
    body = b'{"instance_ids": ["mkdir-1", "\\ud800"]}'
    answer = server.client.post("/tasks", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert "item 1" in answer.json()["detail"]


def test_health_answers_with_a_task_whose_limit_is_infinite(tmp_path: Path) -> None:
    toml = 'schema_version = "1.2"\n[task]\nname = "test/endless"\n[verifier]\ntimeout_sec = inf\n[environment]\n'
    write_task(tmp_path / "tasks", "endless", task_toml=toml)
    server = AgentServerProcess(tmp_path, tmp_path / "tasks")
    try:
        assert (server.health()["trial_timeout"], server.health()["tasks"]) == (None, 1)
    finally:
        server.close()

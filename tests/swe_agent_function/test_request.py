"""What the agent function asks of the agent server."""

from pathlib import Path
from typing import Any

import pytest

import swe_agent_function
from tests.agent_server_stub import AgentServerStub
from tests.swe_agent_function.calls import METADATA, SETTINGS, run


async def test_the_request_is_the_record_plus_the_session(
    server: AgentServerStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_MODEL_NAME", "glm-4.7-flash")
    from_miles = {"max_seq_len": "8192", "session_server_id": "node-a:30000", "session_server_instance_id": "i-1"}
    stale = {"reward": 1.0, "exit_status": "Submitted", "discard": False}
    outcome = await run(METADATA | from_miles | stale)
    (request,) = server.requests
    assert request.path == "/run"
    assert request.body == {
        **METADATA,
        "base_url": "http://10.0.0.1:30000/sessions/s1/v1",
        "model": "openai/glm-4.7-flash",
        "sampling_params": {"temperature": 0.8, "max_tokens": 64},
        "max_seq_len": 8192,
        "session_server_id": "10.0.0.1:30000",
        "session_server_instance_id": "i-1",
    }
    assert "authorization" not in request.headers
    assert outcome == {
        "reward": 1.0,
        "exit_status": "Submitted",
        "discard": False,
        "eval_report": {},
        "agent_metrics": {},
    }


async def test_what_is_not_known_is_not_sent(server: AgentServerStub) -> None:
    await swe_agent_function.run("http://h:1/v1", "prompt", {})
    assert server.requests[0].body == {"base_url": "http://h:1/v1", "model": "openai/model", "sampling_params": {}}


@pytest.mark.parametrize(
    ("base_url", "external", "seen"),
    [
        ("http://10.0.0.1:30000/sessions/s1", None, "http://10.0.0.1:30000/sessions/s1/v1"),
        ("http://10.0.0.1:30000/sessions/s1/", None, "http://10.0.0.1:30000/sessions/s1/v1"),
        ("http://10.0.0.1:30000/sessions/s1/v1", None, "http://10.0.0.1:30000/sessions/s1/v1"),
        ("http://[fd00::1]:30000/sessions/s1", None, "http://[fd00::1]:30000/sessions/s1/v1"),
        ("http://10.0.0.1:30000/sessions/s1", "gpu.example", "http://gpu.example:30000/sessions/s1/v1"),
        ("http://10.0.0.1:30000/sessions/s1", "fd00::7", "http://[fd00::7]:30000/sessions/s1/v1"),
    ],
)
async def test_the_session_is_named_as_the_agent_can_reach_it(
    server: AgentServerStub, monkeypatch: pytest.MonkeyPatch, base_url: str, external: str | None, seen: str
) -> None:
    if external:
        monkeypatch.setenv("MILES_ROUTER_EXTERNAL_HOST", external)
    await run(base_url=base_url)
    assert server.requests[0].body["base_url"] == seen


async def test_the_older_names_of_the_settings_work(server: AgentServerStub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENT_SERVER_URL")
    monkeypatch.setenv("SWE_AGENT_URL", server.url)
    monkeypatch.setenv("SWE_AGENT_MODEL_NAME", "openai/already")
    await run()
    assert server.requests[0].body["model"] == "openai/already"


async def test_the_token_file_gives_the_bearer_token(
    server: AgentServerStub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    monkeypatch.setenv("AGENT_SERVER_TOKEN_FILE", str(tmp_path / "token"))
    await run()
    assert server.requests[0].headers["authorization"] == "Bearer s3cret"


@pytest.mark.parametrize("content", [None, "", "two\nlines", "schlüssel"])
async def test_a_token_that_cannot_be_read_is_a_named_discard(
    server: AgentServerStub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str | None
) -> None:
    if content is not None:
        (tmp_path / "token").write_text(content)
    monkeypatch.setenv("AGENT_SERVER_TOKEN_FILE", str(tmp_path / "token"))
    outcome = await run()
    assert (outcome["exit_status"], outcome["discard"]) == ("RequestRejected", True)
    assert not server.requests


async def test_the_lifetime_of_sandboxes_goes_with_the_request(
    server: AgentServerStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOX_AUTO_STOP_MINUTES", "150")
    monkeypatch.setenv("SANDBOX_AUTO_DELETE_MINUTES", "a day")
    await run()
    (request,) = server.requests
    assert request.body["sandbox_auto_stop_minutes"] == 150
    assert "sandbox_auto_delete_minutes" not in request.body


@pytest.mark.parametrize("bad", [{"x": {1, 2}}, {"x": float("nan")}, {"max_seq_len": "many"}])
async def test_a_record_that_json_cannot_hold_is_a_named_discard(server: AgentServerStub, bad: dict[str, Any]) -> None:
    assert (await run(METADATA | bad))["exit_status"] == "RequestRejected"
    assert not server.requests


@pytest.mark.parametrize("base_url", ["", "no-scheme", None])
async def test_a_session_without_an_address_is_a_named_discard(server: AgentServerStub, base_url: Any) -> None:
    assert (await run(base_url=base_url))["exit_status"] == "RequestRejected"
    assert not server.requests


def test_the_module_needs_nothing_heavy() -> None:
    source = Path(swe_agent_function.__file__).read_text()
    assert not any(f"import {name}" in source for name in ("torch", "ray", "miles", "launcher"))


def test_the_docstring_names_every_setting() -> None:
    assert all(name in (swe_agent_function.__doc__ or "") for name in SETTINGS if not name.endswith("_FILE"))

"""The way back: what `POST /probe` fetches, for whom, and what it refuses."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harbor_service.harbor_server_process import AgentServerProcess
from tests.launcher.checks.free_ports import free_span
from tests.launcher.checks.http_answers import http_answers

NONCE = "aB3_-x"


def probe(server: AgentServerProcess, port: int, **fields: Any) -> httpx.Response:
    return server.client.post("/probe", json={"host": "127.0.0.1", "port": port, "nonce": NONCE, **fields})


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def own_address() -> str | None:
    """An address of this machine that is not loopback, None where it has no network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(("192.0.2.77", 9))  # sends nothing
        except OSError:
            return None
        return asking.getsockname()[0]


def test_a_port_that_answers_is_reached(server: AgentServerProcess) -> None:
    with http_answers({f"/{NONCE}": (200, NONCE)}) as answers:
        reply = probe(server, port_of(answers.url))
    assert reply.json() == {"reached": True, "body": NONCE, "error": ""}
    assert answers.asked == [(f"/{NONCE}", None)]


def test_a_port_that_nobody_listens_on_is_not_reached(server: AgentServerProcess) -> None:
    reply = probe(server, free_span(1)).json()
    assert (reply["reached"], reply["body"]) == (False, "")
    assert "ConnectError" in reply["error"]


def test_a_port_that_stays_silent_is_given_up(server: AgentServerProcess) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(8)
        reply = probe(server, silent.getsockname()[1]).json()
    assert reply == {"reached": False, "body": "", "error": "no answer within 2 s"}


def test_no_more_than_a_kibibyte_comes_back(server: AgentServerProcess) -> None:
    with http_answers({"*": (200, "x" * 100_000)}) as answers:
        assert len(probe(server, port_of(answers.url)).json()["body"]) == 1024


def test_a_redirect_is_not_followed_and_shows_nothing(server: AgentServerProcess) -> None:
    with http_answers({"*": (302, "secret page")}) as answers:
        assert probe(server, port_of(answers.url)).json() == {"reached": False, "body": "", "error": "HTTP 302"}


def test_a_proxy_in_the_environment_is_not_asked(tmp_path: Path, tasks_dir: Path) -> None:
    with http_answers({"*": (200, "from the proxy")}) as proxy, http_answers({"*": (200, NONCE)}) as answers:
        variables = {"http_proxy": proxy.url, "HTTP_PROXY": proxy.url, "no_proxy": ""}
        process = AgentServerProcess(tmp_path, tasks_dir, environ=variables)
        try:
            reply = process.client.post(
                "/probe", json={"host": "127.0.0.1", "port": port_of(answers.url), "nonce": NONCE}
            )
        finally:
            process.close()
    assert reply.json()["body"] == NONCE
    assert proxy.asked == []


@pytest.mark.parametrize(
    "fields",
    [
        {"port": 1023},
        {"port": 80},
        {"port": 65536},
        {"port": "8080"},
        {"nonce": ""},
        {"nonce": "../latest/meta-data"},
        {"nonce": "a\n"},
        {"nonce": "a" * 65},
        {"host": ""},
        {"host": "127.0.0.1:22"},
        {"host": "user@127.0.0.1"},
        {"host": "127.0.0.1/path?"},
        {"host": "a b"},
        {"host": "a\n"},
        {"host": "fe80::1%lo"},
    ],
)
def test_what_is_no_host_port_or_nonce_is_refused(server: AgentServerProcess, fields: dict[str, Any]) -> None:
    assert probe(server, **{"port": 40000, **fields}).status_code == 422


@pytest.mark.parametrize("host", ["no-such-host.invalid", "agent_env", "::1", "a..b"])
def test_a_host_that_cannot_be_reached_is_said_so(server: AgentServerProcess, host: str) -> None:
    reply = probe(server, free_span(1), host=host)
    assert reply.status_code == 200
    assert reply.json()["reached"] is False and reply.json()["error"]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, tasks_dir: Path) -> Iterator[AgentServerProcess]:
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "token").write_text("t0ken\n")
    process = AgentServerProcess(folder, tasks_dir, "--token-file", str(folder / "token"), "--host", "0.0.0.0")
    yield process
    process.close()


def test_with_a_token_only_its_holder_may_probe(guarded: AgentServerProcess) -> None:
    assert probe(guarded, 40000).status_code == 401
    guarded.client.headers["Authorization"] = "Bearer t0ken"
    assert probe(guarded, free_span(1)).status_code == 200


def test_without_a_token_a_caller_of_this_machine_may_probe_by_any_of_its_addresses(
    tmp_path: Path, tasks_dir: Path
) -> None:
    address = own_address()
    if address is None:
        pytest.skip("this machine has loopback only")
    process = AgentServerProcess(tmp_path, tasks_dir, "--host", "0.0.0.0")
    try:
        url = f"http://{address}:{port_of(process.url)}/probe"
        body = {"host": "127.0.0.1", "port": free_span(1), "nonce": NONCE}
        assert httpx.post(url, json=body, trust_env=False).status_code == 200
        transport = httpx.HTTPTransport(local_address="127.0.0.1")
        with httpx.Client(transport=transport, trust_env=False) as local:
            assert local.post(f"{process.url}/probe", json=body).status_code == 200
    finally:
        process.close()


def test_health_names_the_environment(server: AgentServerProcess) -> None:
    assert server.health()["environment"] == "local"
    assert "sandbox_auto_stop_minutes" not in server.health()

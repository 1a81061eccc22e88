from collections.abc import AsyncGenerator

import pytest

import swe_agent_function
from tests.agent_server_stub import AgentServerStub
from tests.swe_agent_function.calls import SETTINGS


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AGENT_SERVER_WAIT", "0")
    monkeypatch.setattr(swe_agent_function, "_warned", set[str]())
    monkeypatch.setattr(swe_agent_function, "_last_waiting_notice", float("-inf"))


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[AgentServerStub]:
    async with AgentServerStub().serving() as stub:
        monkeypatch.setenv("AGENT_SERVER_URL", stub.url + "/")
        yield stub

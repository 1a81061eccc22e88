"""Each agent that runs on the server's side: real server, Harbor trial, sandbox and verifier; the model is scripted."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harbor_service.harbor_model_stub import Reply, SessionStub
from tests.harbor_service.harbor_server_process import AgentServerProcess
from tests.harbor_service.scripted_agents import SCRIPTS, Script

MakeSession = Callable[..., SessionStub]


@pytest.fixture
def session() -> Iterator[MakeSession]:
    made: list[SessionStub] = []

    def make(*replies: Reply) -> SessionStub:
        made.append(SessionStub(*replies))
        return made[-1]

    yield make
    for stub in made:
        stub.close()


@pytest.fixture(scope="session")
def patient(tmp_path_factory: pytest.TempPathFactory, tasks_dir: Path) -> Iterator[AgentServerProcess]:
    """Half a minute for an agent: the first trial of terminus-2 imports LiteLLM."""
    process = AgentServerProcess(tmp_path_factory.mktemp("patient"), tasks_dir, "--agent-timeout", "30")
    yield process
    process.close()


@pytest.fixture(params=SCRIPTS)
def script(request: pytest.FixtureRequest) -> Script:
    return SCRIPTS[request.param]


def run(server: AgentServerProcess, model: SessionStub, script: Script, **fields: Any) -> dict[str, Any]:
    options = {**script.options, **fields.pop("agent_options", {})}
    response = server.run("mkdir-1", model.base_url, agent_name=script.name, agent_options=options, **fields)
    assert response.status_code == 200, response.text
    return response.json()


def test_an_episode_of_several_turns_is_rewarded_and_only_extends_its_history(
    patient: AgentServerProcess, session: MakeSession, script: Script
) -> None:
    model = session(script.text("ls nowhere"), script.misunderstood, script.text("mkdir target"), *script.done)
    reply = run(patient, model, script)
    assert model.refused == []
    assert (reply["reward"], reply["exit_status"]) == (1.0, script.exit_status)
    metrics = reply["agent_metrics"]
    turns = 3 + len(script.done)
    assert (metrics["turns"], metrics["model_calls"], model.turns) == (turns, turns, turns)
    assert (metrics["format_errors"], metrics["endpoint_failures"]) == (1, 0)
    assert metrics["commands"] >= 2 and metrics["model_seconds"] > 0 and metrics["command_seconds"] > 0
    assert (metrics["input_tokens"], metrics["output_tokens"]) == (100 * turns, 10 * turns)
    assert any("nowhere" in str(message["content"]) for message in model.history if message["role"] != "assistant")

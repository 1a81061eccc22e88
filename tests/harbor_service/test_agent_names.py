"""Which agents a record may name, what they are told, and what is refused with a sentence."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harbor_service.agent_options import BadAgentOptions
from harbor_service.agents import agent_config
from harbor_service.own_agents import OWN_AGENTS, check_default_options
from harbor_service.run_request import RunRequest
from tests.harbor_service.harbor_model_stub import ModelStub, Reply, bash
from tests.harbor_service.harbor_server_process import ROOT, AgentServerProcess

SESSION = "http://127.0.0.1:9/sessions/s1/v1"


def config(name: str, *, local: bool = True, defaults: dict[str, Any] | None = None, **fields: Any) -> Any:
    request = RunRequest(instance_id="t", agent_name=name, **{"base_url": SESSION, **fields})
    return agent_config(request, defaults or {}, 10.0, 20.0, local=local)


@pytest.mark.parametrize("name", ["claude-code", "aider"])
def test_agent_that_installs_itself_is_refused_where_the_sandbox_has_no_network(name: str) -> None:
    with pytest.raises(BadAgentOptions, match=f"agent {name} installs itself in the sandbox, .* no network"):
        config(name)
    there = config(name, local=False, model="openai/m")
    assert (there.name, there.import_path, there.model_name) == (name, None, "openai/m")
    assert there.env["OPENAI_BASE_URL"] == SESSION and there.override_timeout_sec == 10.0


def test_installed_agent_is_refused_by_the_server_before_a_trial(server: AgentServerProcess, model: ModelStub) -> None:
    response = server.run("mkdir-1", model.base_url, agent_name="claude-code")
    assert response.status_code == 422
    assert "use shell, mini-swe-agent, terminus-2 or another --environment" in response.json()["detail"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gpt", "unknown agent_name 'gpt'; known: shell, mini-swe-agent, terminus-2, oracle, nop, MODULE:CLASS"),
        ("no.such.module:Agent", "Failed to import module"),
        ("json:Nothing", "no class 'Nothing'"),
        ("subprocess:Popen", "must subclass BaseAgent"),
        ("os:system", "must be a class"),
        (":", "must be in format"),
    ],
)
def test_name_that_is_no_agent_is_refused(name: str, words: str) -> None:
    with pytest.raises(BadAgentOptions, match=words):
        config(name)


@pytest.mark.parametrize("does", ["raise KeyError('HOME')", "raise SystemExit(2)", "1/0", "this is no Python"])
def test_module_that_cannot_be_imported_is_refused_and_ends_nothing(
    tmp_path: Path, tasks_dir: Path, model: ModelStub, does: str
) -> None:
    (tmp_path / "broken_agent.py").write_text(f"{does}\n")
    server = AgentServerProcess(tmp_path, tasks_dir, environ={"PYTHONPATH": str(tmp_path)})
    try:
        response = server.run("mkdir-1", model.base_url, agent_name="broken_agent:Agent")
        assert response.status_code == 422
        assert "broken_agent:Agent cannot be used here: " in response.json()["detail"]
        assert server.run("mkdir-1", model.base_url).json()["reward"] == 1.0
    finally:
        server.close()


@pytest.mark.parametrize("name", OWN_AGENTS)
@pytest.mark.parametrize("options", [{"max_turns": 0}, {"max_turn": 3}, {"max_turns": "3"}, {"max_turns": True}])
def test_option_that_cannot_work_is_refused_by_name(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(BadAgentOptions, match="max_turn"):
        config(name, agent_options=options)


def test_summaries_cannot_be_switched_on_since_they_replace_the_history() -> None:
    with pytest.raises(BadAgentOptions, match="unknown terminus-2 agent option enable_summarize"):
        config("terminus-2", agent_options={"enable_summarize": True})


@pytest.mark.parametrize("options", [{"logs_dir": "/etc"}, {"extra_env": {"A": "b"}}, {"model_name": "x"}])
def test_record_cannot_set_what_harbor_sets(options: dict[str, Any]) -> None:
    for name in ("tests.tasks.forging_agent:ForgingAgent", "aider"):
        with pytest.raises(BadAgentOptions, match=next(iter(options))):
            config(name, local=False, agent_options=options)


def test_defaults_apply_where_the_agent_has_them_and_under_the_records_own() -> None:
    defaults = {"max_turns": 7, "observation_limit": 50}
    check_default_options(defaults)
    given = {name: config(name, defaults=defaults).kwargs["agent_options"] for name in OWN_AGENTS}
    assert given == {"shell": defaults, "mini-swe-agent": {"max_turns": 7}, "terminus-2": {"max_turns": 7}}
    assert config("shell", defaults=defaults, agent_options={"max_turns": 2}).kwargs["agent_options"]["max_turns"] == 2
    with pytest.raises(BadAgentOptions, match="max_turn;"):
        check_default_options({"max_turn": 1})


def test_terminus_is_refused_where_the_machine_has_no_tmux(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(program: str, path: str) -> None:
        del program, path

    monkeypatch.setattr("harbor_service.agents.shutil.which", nowhere)
    with pytest.raises(BadAgentOptions, match="terminus-2 needs tmux"):
        config("terminus-2")
    assert config("terminus-2", local=False).import_path is not None


def test_agent_of_ones_own_is_taken_by_its_import_path(server: AgentServerProcess, model: ModelStub) -> None:
    """It forges a reward and asks no model, which nobody counts: its trial is scored, by the verifier."""
    response = server.run("mkdir-1", agent_name="tests.tasks.forging_agent:ForgingAgent")
    assert response.status_code == 200, response.text
    reply = response.json()
    assert (reply["reward"], reply["exit_status"]) == (0.0, "Unreported")
    assert not {"turns", "model_calls", "input_tokens", "commands"} & set(reply["agent_metrics"])


REPORTING = "tests.harbor_service.reporting_agent:ReportingAgent"


def test_agent_of_ones_own_reports_what_it_knows_and_nothing_is_made_up(
    server: AgentServerProcess, model: ModelStub
) -> None:
    report = {"exit_status": "Finished", "rounds": 2, "share": 0.123456, "notes": ["long"], "quick": True}
    reply = server.run("mkdir-1", model.base_url, agent_name=REPORTING, agent_options={"report": report}).json()
    assert (reply["reward"], reply["exit_status"]) == (1.0, "Finished")
    known = set(reply["agent_metrics"]) - {
        f"{part}_seconds" for part in ("agent", "build", "verifier", "queue", "trial")
    }
    assert known == {"rounds", "share"}  # no list, no address, and no tokens of a model that nobody counted
    assert (reply["agent_metrics"]["rounds"], reply["agent_metrics"]["share"]) == (2, 0.1235)


CONTEXT = '{"error": {"message": "This model\'s maximum context length is 2048 tokens."}}'


@pytest.mark.parametrize(
    ("reply", "reward", "status"),
    [
        (Reply(status=500, body="boom"), None, "ModelEndpointFailed"),
        (Reply(status=401, body="{}"), None, "ModelEndpointFailed"),
        (Reply(status=429, body="{}"), None, "ModelEndpointFailed"),
        (Reply(status=400, body='{"error": {"message": "no such field"}}'), None, "InfraError"),
        (Reply(status=400, body=CONTEXT), 1.0, "SequenceLengthLimitExceeded"),
    ],
)
def test_what_the_model_answers_an_agent_of_ones_own_decides_though_harbor_grades(
    server: AgentServerProcess, model: ModelStub, reply: Reply, reward: float | None, status: str
) -> None:
    """With the openai client, as such agents have it; the task is solved before the model is asked."""
    model.answer = lambda body: reply
    agent = "tests.harbor_service.failures.asking_agent:AskingAgent"
    answer = server.run("mkdir-1", model.base_url, agent_name=agent).json()
    assert (answer["reward"], answer["exit_status"]) == (reward, status), answer


@pytest.mark.parametrize(
    ("report", "status"),
    [({"model_calls": 0}, "NeverRan"), ({"model_calls": 3, "endpoint_failures": 1}, "ModelEndpointFailed")],
)
def test_counts_of_an_agent_of_ones_own_are_believed(
    server: AgentServerProcess, report: dict[str, int], status: str
) -> None:
    reply = server.run("mkdir-1", agent_name=REPORTING, agent_options={"report": report}).json()
    assert (reply["reward"], reply["exit_status"]) == (None, status)


def test_shell_agent_hands_back_the_reasoning_that_the_session_compares(
    server: AgentServerProcess, model: ModelStub
) -> None:
    thought = Reply("```bash\nfalse\n```", message={"reasoning_content": "hm"})
    replies = [thought, bash("mkdir target")]
    model.answer = lambda body: replies[len(model.requests) - 1]
    assert server.run("mkdir-1", model.base_url).json()["reward"] == 1.0
    assert model.requests[1]["messages"][-2] == thought.message


def test_agents_that_are_not_used_are_not_imported() -> None:
    code = (
        "import sys, agent_server, harbor_service.agents\n"
        "print([m for m in ('litellm', 'minisweagent', 'harbor.agents.terminus_2') if m in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"


def test_mini_swe_agent_is_imported_without_banner_home_folder_or_settings_of_the_user(tmp_path: Path) -> None:
    settings = tmp_path / ".config" / "mini-swe-agent"
    settings.mkdir(parents=True)
    (settings / ".env").write_text("MSWEA_CANARY=1\n")
    before = sorted(tmp_path.rglob("*"))
    code = (
        "import os; was = dict(os.environ)\n"
        "import harbor_service.mini_agent\n"
        "print({n for n in {*was, *os.environ} if was.get(n) != os.environ.get(n)} - {'HARBOR_TELEMETRY',"
        " 'LITELLM_LOCAL_MODEL_COST_MAP'})"
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("MSWEA", "XDG"))}
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (ended.stdout, ended.stderr) == ("set()\n", "")
    assert sorted(tmp_path.rglob("*")) == before

"""Each agent that runs on the server's side: real server, Harbor trial, sandbox and verifier; the model is scripted."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.harbor_service.harbor_model_stub import Reply, SessionStub
from tests.harbor_service.harbor_server_process import MKDIR_TEST, AgentServerProcess, write_task
from tests.harbor_service.scripted_agents import SCRIPTS, Script
from tests.harbor_service.test_trial_ends_from_outside import sandboxed, wait_for

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


@pytest.fixture(scope="session")
def steps_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One task of two steps: the folder /app/one, then /app/two."""
    root = tmp_path_factory.mktemp("steps")
    name = write_task(root, "two-steps")
    with (root / name / "task.toml").open("a") as file:
        file.write('[[steps]]\nname = "one"\n[[steps]]\nname = "two"\n')
    for step in ("one", "two"):
        folder = root / name / "steps" / step
        (folder / "tests").mkdir(parents=True)
        (folder / "instruction.md").write_text(f"Create the folder {step}.\n")
        (folder / "tests" / "test.sh").write_text(MKDIR_TEST.replace("target", step))
    return root


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


def test_second_step_of_a_task_follows_the_first_in_the_same_session(
    tmp_path: Path, steps_dir: Path, session: MakeSession
) -> None:
    server = AgentServerProcess(tmp_path, steps_dir, "--agent-timeout", "30")
    try:
        for script in SCRIPTS.values():
            step = [script.text("mkdir one"), *script.done]
            model = session(*step, script.text("mkdir two"), *script.done)
            response = server.run("two-steps", model.base_url, agent_name=script.name, agent_options=script.options)
            reply = response.json()
            assert (model.refused, reply["reward"], reply["exit_status"]) == ([], 1.0, "Submitted"), script.name
            assert reply["agent_metrics"]["turns"] == model.turns == 2 * len(step)
            assert [message["role"] for message in model.history].count("system") <= 1
            assert any("folder two" in str(message["content"]) for message in model.history)
    finally:
        server.close()


def test_endpoint_that_fails_in_the_middle_is_discarded(
    patient: AgentServerProcess, session: MakeSession, script: Script
) -> None:
    model = session(script.text("mkdir target"), Reply(status=500, body="boom"))
    reply = run(patient, model, script)
    assert (reply["reward"], reply["exit_status"]) == (None, "ModelEndpointFailed")
    assert len(model.requests) == 2, "a call was repeated, which a session answers with 409"
    assert reply["agent_metrics"]["endpoint_failures"] == 1


def test_turn_limit_is_scored_by_the_verifier(
    patient: AgentServerProcess, session: MakeSession, script: Script
) -> None:
    model = session(script.text("mkdir target"), script.text("ls nowhere"))
    reply = run(patient, model, script, agent_options={"max_turns": 2})
    assert (reply["reward"], reply["exit_status"]) == (1.0, "TurnLimitExceeded")
    assert model.turns == 2


def test_conversation_that_no_longer_fits_is_scored(
    patient: AgentServerProcess, session: MakeSession, script: Script
) -> None:
    refusal = Reply(status=400, body='{"error": "maximum context length is 2048 tokens"}')
    model = session(script.text("mkdir target"), refusal)
    reply = run(patient, model, script)
    assert (reply["reward"], reply["exit_status"]) == (1.0, "SequenceLengthLimitExceeded")
    assert len(model.requests) == 2


def test_answer_that_was_cut_off_is_the_last_and_not_executed(
    patient: AgentServerProcess, session: MakeSession, script: Script
) -> None:
    whole = script.text("mkdir target")
    cut_off = Reply(whole.message["content"], finish_reason="length", message=whole.message)
    model = session(cut_off)
    reply = run(patient, model, script)
    assert (reply["reward"], reply["exit_status"]) == (0.0, "OutputLengthExceeded")
    assert len(model.requests) == 1


@pytest.mark.long
def test_agent_out_of_time_is_scored_whatever_it_waits_for(server: AgentServerProcess, session: MakeSession) -> None:
    def episode(script: Script) -> dict[str, Any]:
        slow = script.text("ls")
        slow.delay = 60
        return run(server, session(script.text("mkdir target"), slow), script)

    with ThreadPoolExecutor(len(SCRIPTS)) as pool:
        for reply in pool.map(episode, SCRIPTS.values()):
            assert (reply["reward"], reply["exit_status"]) == (1.0, "TimeLimitExceeded")
            assert reply["agent_metrics"]["turns"] == 1


def test_tokens_that_the_endpoint_does_not_count_are_left_out(
    patient: AgentServerProcess, session: MakeSession, script: Script
) -> None:
    first = script.text("ls")
    uncounted = Reply(first.message["content"], message=first.message, usage=False)
    model = session(uncounted, script.text("mkdir target"), *script.done)
    reply = run(patient, model, script)
    assert reply["exit_status"] == script.exit_status
    assert not {"input_tokens", "output_tokens"} & set(reply["agent_metrics"])


@pytest.mark.parametrize("name", ["mini", "mini-tools"])
def test_mini_swe_agent_gives_up_after_repeated_format_errors(
    patient: AgentServerProcess, session: MakeSession, name: str
) -> None:
    script = SCRIPTS[name]
    model = session(script.text("mkdir target"), *[script.misunderstood] * 3)
    reply = run(patient, model, script)
    assert (reply["reward"], reply["exit_status"]) == (1.0, "RepeatedFormatError")
    assert (model.refused, reply["agent_metrics"]["format_errors"]) == ([], 3)


def test_mini_swe_agent_shows_what_a_command_printed_before_its_time_was_over(
    patient: AgentServerProcess, session: MakeSession
) -> None:
    script = SCRIPTS["mini"]
    model = session(script.text("echo begun; sleep 60"), script.text("mkdir target"), *script.done)
    reply = run(patient, model, script, agent_options={"command_timeout": 1})
    assert (reply["reward"], reply["exit_status"]) == (1.0, "Submitted")
    shown = model.history[3]["content"]
    assert "begun" in shown and "timed out after 1 seconds" in shown and "<returncode>-1" in shown


def test_templates_of_mini_swe_agent_do_not_see_the_servers_environment(
    tmp_path: Path, tasks_dir: Path, session: MakeSession
) -> None:
    script = SCRIPTS["mini"]
    server = AgentServerProcess(tmp_path, tasks_dir, environ={"CANARY": "singing"})
    try:
        model = session(*script.done)
        template = "{{task}} on {{system}} {{machine}}: {% if CANARY is defined %}{{CANARY}}{% endif %}"
        run(server, model, script, agent_options={"instance_template": template})
    finally:
        server.close()
    prompt = model.history[1]["content"]
    assert prompt.startswith("Create the folder target.\n on Linux ") and "singing" not in prompt


def test_a_template_from_a_record_reaches_nothing_of_the_server(
    patient: AgentServerProcess, session: MakeSession, tmp_path: Path
) -> None:
    script = SCRIPTS["mini"]
    attack = f"{{{{ cycler.__init__.__globals__.os.mkdir('{tmp_path}/reached') }}}}"
    names = ("system_template", "instance_template", "observation_template", "format_error_template")
    for name in names:
        model = session(script.misunderstood, script.text("mkdir target"), *script.done)
        reply = run(patient, model, script, agent_options={name: attack})
        assert (reply["reward"], reply["eval_report"]["error"]["type"]) == (None, "SecurityError"), name
    assert not (tmp_path / "reached").exists()


@pytest.mark.parametrize("command", ["tmux kill-server", "exit", "kill -9 -1"])
def test_terminal_that_the_policy_ends_is_scored(
    patient: AgentServerProcess, session: MakeSession, command: str
) -> None:
    script = SCRIPTS["terminus"]
    model = session(script.text("mkdir target"), script.text(command), *[script.text("ls")] * 3)
    reply = run(patient, model, script)
    assert (reply["reward"], reply["exit_status"]) == (1.0, "AgentError")


@pytest.mark.parametrize(
    "nonsense",
    [
        "```mswea_bash_command" + "\n" * 200_000,
        '{"a":' * 50_000,
        '{"analysis":' + "9" * 5_000 + "}",
        "\ud800",
        '{"analysis": 1, "plan": [], "commands": {}}',
        "",
    ],
)
def test_answer_that_no_parser_reads_is_a_format_error(
    patient: AgentServerProcess, session: MakeSession, nonsense: str
) -> None:
    for script in (SCRIPTS["terminus"], SCRIPTS["mini"]):
        model = session(script.text("mkdir target"), Reply(nonsense), *script.done)
        reply = run(patient, model, script)
        assert (model.refused, reply["reward"], reply["exit_status"]) == ([], 1.0, "Submitted")
        assert reply["agent_metrics"]["format_errors"] == 1


@pytest.mark.parametrize("command", ["echo \ud800 > x", "echo \0 > x", "echo " + "y" * 150_000])
def test_command_that_no_machine_takes_does_not_end_the_trial(
    patient: AgentServerProcess, session: MakeSession, script: Script, command: str
) -> None:
    model = session(script.text(command), script.text("mkdir target"), *script.done)
    reply = run(patient, model, script)
    assert (model.refused, reply["exit_status"]) == ([], script.exit_status), reply


def test_completion_that_is_not_confirmed_is_no_submission(patient: AgentServerProcess, session: MakeSession) -> None:
    script = SCRIPTS["terminus"]
    model = session(script.text("mkdir target"), script.done[0], script.text("ls"), *script.done)
    reply = run(patient, model, script, agent_options={"max_turns": 4})
    assert (reply["reward"], reply["exit_status"]) == (1.0, "TurnLimitExceeded")


def test_options_of_the_server_reach_each_agent_that_has_them(
    tmp_path: Path, tasks_dir: Path, session: MakeSession
) -> None:
    flags = ("--agent-options", '{"max_turns": 2, "observation_limit": 5, "command_timeout": 20}')
    server = AgentServerProcess(tmp_path, tasks_dir, *flags)
    try:
        for script in (SCRIPTS["shell"], SCRIPTS["mini"]):
            options = {name: value for name, value in script.options.items() if name != "max_turns"}
            model = session(*[script.text("ls nowhere")] * 3)
            response = server.run("mkdir-1", model.base_url, agent_name=script.name, agent_options=options)
            assert (response.json()["exit_status"], model.turns) == ("TurnLimitExceeded", 2), script.name
            model = session(*[script.text("ls nowhere")] * 4)
            own = {**options, "max_turns": 3}
            response = server.run("mkdir-1", model.base_url, agent_name=script.name, agent_options=own)
            assert (response.json()["exit_status"], model.turns) == ("TurnLimitExceeded", 3), script.name
    finally:
        server.close()


def test_flush_ends_an_agent_in_the_middle_of_its_command(
    patient: AgentServerProcess, session: MakeSession, script: Script
) -> None:
    model = session(script.text("sleep 1618"), Reply(delay=60))  # terminus-2 does not wait for a command
    with ThreadPoolExecutor(1) as pool:
        options = {"command_timeout": 60} if script.name != "terminus-2" else {}
        job = pool.submit(run, patient, model, script, agent_options=options, session_server_instance_id="one")
        assert wait_for(lambda: sandboxed("sleep 1618"), 30)
        flushed = patient.client.post("/flush", json={"session_server_instance_id": "one"})
        assert flushed.json() == {"cancelled": 1}
        assert not sandboxed("sleep 1618")
        assert job.result()["exit_status"] == "Aborted"
    assert patient.health()["running"] == 0

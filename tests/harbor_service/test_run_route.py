"""What POST /run answers for every way a trial can end: real server, Harbor, sandbox and verifier, stub model."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.harbor_service.harbor_model_stub import ModelStub, Reply, bash
from tests.harbor_service.harbor_server_process import AgentServerProcess


def run(server: AgentServerProcess, model: ModelStub, instance_id: str = "mkdir-1", **fields: Any) -> dict[str, Any]:
    response = server.run(instance_id, model.base_url, **fields)
    assert response.status_code == 200, response.text
    assert set(response.json()) == {"reward", "exit_status", "eval_report", "agent_metrics"}
    return response.json()


def test_solved_task_is_rewarded(server: AgentServerProcess, model: ModelStub) -> None:
    reply = run(server, model)
    assert (reply["reward"], reply["exit_status"]) == (1.0, "CommandSucceeded")
    metrics = reply["agent_metrics"]
    assert (metrics["turns"], metrics["commands"], metrics["model_calls"]) == (1, 1, 1)
    assert {"model_seconds", "command_seconds", "queue_seconds", "verifier_seconds"} <= set(metrics)
    request = model.requests[0]
    assert request["path"].endswith("/v1/chat/completions")
    assert request["model"] == "model"
    assert request["stop_regex"] == ["(?s)```.*?```"]
    assert request["temperature"] == 0.7
    assert [m["role"] for m in request["messages"]] == ["system", *["user", "assistant"] * 3, "user"]


def test_failed_command_gives_another_try(server: AgentServerProcess, model: ModelStub) -> None:
    replies = [bash("ls nowhere"), Reply("no block here"), bash("mkdir target")]
    model.answer = lambda body: replies[len(model.requests) - 1]
    reply = run(server, model)
    assert (reply["reward"], reply["exit_status"]) == (1.0, "CommandSucceeded")
    assert reply["agent_metrics"]["format_errors"] == 1
    last = model.requests[-1]["messages"]
    assert last[-3]["content"].startswith("Exit code 2. Output:\nls: cannot access 'nowhere'")
    assert last[-2] == {"role": "assistant", "content": "no block here"}
    assert last[-1]["content"] == "Give exactly one bash code block."


def test_turn_limit_is_scored_by_the_verifier(server: AgentServerProcess, model: ModelStub) -> None:
    model.answer = lambda body: bash("false")
    reply = run(server, model, agent_options={"max_turns": 2})
    assert (reply["reward"], reply["exit_status"]) == (0.0, "TurnLimitExceeded")
    assert len(model.requests) == 2


def test_submit_command_ends_the_episode(server: AgentServerProcess, model: ModelStub) -> None:
    replies = [bash("mkdir target"), bash("submit")]
    model.answer = lambda body: replies[len(model.requests) - 1]
    reply = run(server, model, agent_options={"end_on_success": False, "submit_command": "submit"})
    assert (reply["reward"], reply["exit_status"]) == (1.0, "Submitted")


def test_command_over_its_time_limit_is_an_observation(server: AgentServerProcess, model: ModelStub) -> None:
    replies = [bash("sleep 60"), bash("mkdir target")]
    model.answer = lambda body: replies[len(model.requests) - 1]
    reply = run(server, model, agent_options={"command_timeout": 1})
    assert (reply["reward"], reply["exit_status"]) == (1.0, "CommandSucceeded")
    assert model.requests[-1]["messages"][-1]["content"].startswith("Exit code 124. Output:\nCommand timed out")


def test_agent_timeout_is_scored(server: AgentServerProcess, model: ModelStub) -> None:
    replies = [bash("mkdir target; false"), Reply("", delay=30)]
    model.answer = lambda body: replies[len(model.requests) - 1]
    reply = run(server, model)
    assert (reply["reward"], reply["exit_status"]) == (1.0, "TimeLimitExceeded")


def test_a_memory_bomb_is_scored_zero_by_name(server: AgentServerProcess, model: ModelStub) -> None:
    fill = "import time; x = bytearray(b'x' * 2) * 150_000_000; time.sleep(9)"
    bomb = f'for i in 1 2 3 4; do python3 -c "{fill}" & done; mkdir target; wait'
    model.answer = lambda body: bash(bomb)
    reply = run(server, model)
    assert (reply["reward"], reply["exit_status"]) == (0.0, "ResourceLimitExceeded"), reply
    assert "total_memory_mb is 512" in reply["eval_report"]["error"]["message"]


def test_broken_verifier_scores_zero(server: AgentServerProcess, model: ModelStub) -> None:
    reply = run(server, model, "broken-verifier")
    assert (reply["reward"], reply["exit_status"]) == (0.0, "VerifierError")


@pytest.mark.parametrize("instance_id", ["no-verifier", "bad-toml"])
def test_broken_task_folder_is_discarded_as_such(
    server: AgentServerProcess, model: ModelStub, instance_id: str
) -> None:
    reply = run(server, model, instance_id)
    assert (reply["reward"], reply["exit_status"]) == (None, "TaskBroken")


@pytest.mark.parametrize(
    "broken",
    [
        Reply(status=500, body="boom"),
        Reply(status=503, body="busy"),
        Reply(status=401, body="who are you"),
        Reply(status=409, body="history was not extended"),
        Reply(body="not json"),
        Reply(body='{"choices": []}'),
        Reply(finish_reason="abort"),
    ],
)
def test_failing_model_endpoint_is_discarded(server: AgentServerProcess, model: ModelStub, broken: Reply) -> None:
    model.answer = lambda body: broken
    reply = run(server, model)
    assert (reply["reward"], reply["exit_status"]) == (None, "ModelEndpointFailed")


def test_model_endpoint_that_fails_later_is_discarded_though_harbor_grades(
    server: AgentServerProcess, model: ModelStub
) -> None:
    replies = [bash("mkdir target; false"), Reply(status=500, body="boom")]
    model.answer = lambda body: replies[len(model.requests) - 1]
    reply = run(server, model)
    assert (reply["reward"], reply["exit_status"]) == (None, "ModelEndpointFailed")
    assert reply["eval_report"]["rewards"] == {"reward": 1.0}
    assert reply["agent_metrics"]["endpoint_failures"] == 1


def test_refused_model_endpoint_is_discarded(server: AgentServerProcess) -> None:
    reply = server.run("mkdir-1", "http://127.0.0.1:9/v1").json()
    assert (reply["reward"], reply["exit_status"]) == (None, "ModelEndpointFailed")


def test_context_length_error_is_scored(server: AgentServerProcess, model: ModelStub) -> None:
    replies = [bash("false"), Reply(status=400, body='{"error": "maximum context length is 2048 tokens"}')]
    model.answer = lambda body: replies[len(model.requests) - 1]
    reply = run(server, model)
    assert (reply["reward"], reply["exit_status"]) == (0.0, "SequenceLengthLimitExceeded")


def test_max_seq_len_ends_the_trial(server: AgentServerProcess, model: ModelStub) -> None:
    reply = run(server, model, max_seq_len=110)  # the stub reports 100 + 10 tokens
    assert (reply["reward"], reply["exit_status"]) == (0.0, "SequenceLengthLimitExceeded")
    assert len(model.requests) == 1


def test_cut_off_reply_is_the_last_and_not_executed(server: AgentServerProcess, model: ModelStub) -> None:
    model.answer = lambda body: Reply("```bash\nmkdir target\n```", finish_reason="length")
    reply = run(server, model)
    assert (reply["reward"], reply["exit_status"]) == (0.0, "OutputLengthExceeded")
    assert len(model.requests) == 1


def test_what_the_agent_leaves_behind_does_not_reach_the_verdict(server: AgentServerProcess, model: ModelStub) -> None:
    forge = "(while true; do echo 1 > /logs/verifier/reward.txt; sleep 0.01; done) & echo 1 > /logs/verifier/reward.txt"
    model.answer = lambda body: bash(forge)
    reply = run(server, model)
    assert (reply["reward"], reply["exit_status"]) == (0.0, "CommandSucceeded")


def test_folder_in_place_of_the_reward_file_is_not_a_way_to_be_discarded(
    server: AgentServerProcess, model: ModelStub
) -> None:
    model.answer = lambda body: bash("rm -rf /logs/verifier/reward.txt; mkdir -p /logs/verifier/reward.txt/x")
    assert run(server, model)["reward"] == 0.0


@pytest.mark.parametrize(("agent_name", "reward"), [("oracle", 1.0), ("nop", 0.0)])
def test_agents_without_a_model_are_scored(server: AgentServerProcess, agent_name: str, reward: float) -> None:
    reply = server.run("mkdir-1", agent_name=agent_name).json()
    assert (reply["reward"], reply["exit_status"]) == (reward, "Submitted")


@pytest.mark.parametrize(
    "instance_id", ["../outside", "../../etc", "..", "/etc", "a" * 300, "nowhere", "mkdir-1/tests", "\0"]
)
def test_unknown_instance_id_is_404(server: AgentServerProcess, instance_id: str) -> None:
    assert server.run(instance_id, "http://127.0.0.1:9/v1").status_code == 404


@pytest.mark.parametrize(
    "change",
    [
        {"instance_id": 7},
        {"instance_id": None},
        {"instance_id": ""},
        {"agent_name": "gpt"},
        {"base_url": "file:///etc/passwd"},
        {"base_url": "http://[::1"},
        {"base_url": "http://host:99999/v1"},
        {"base_url": "http://:80/v1"},
        {"base_url": None},
        {"sampling_params": [1]},
        {"max_seq_len": "long"},
        {"agent_options": {"max_turn": 3}},
        {"agent_options": {"max_turns": 0}},
        {"agent_options": {"end_on_success": "yes"}},
        {"agent_options": {"example_turns": ["hi"]}},
    ],
)
def test_malformed_request_is_422_with_a_reason(server: AgentServerProcess, change: dict[str, Any]) -> None:
    body = {"instance_id": "mkdir-1", "base_url": "http://127.0.0.1:9/v1", "model": "openai/m", **change}
    response = server.client.post("/run", json=body)
    assert response.status_code == 422
    assert isinstance(response.json()["detail"], str)


UNREADABLE = (b"\xff\xfe{}", b'{"instance_id": "\\ud800"}', b"[" * 100_000, b'{"instance_id": "a", "\\ud800": 1}')
ODD_OPTION = b'{"instance_id": "mkdir-1", "base_url": "http://h:1/v1", "agent_options": {"\\ud800": 1}}'


@pytest.mark.parametrize("body", [b"not json", b"[]", b"", b'{"instance_id": ', *UNREADABLE, ODD_OPTION])
def test_body_that_is_no_object_is_422(server: AgentServerProcess, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    assert server.client.post("/run", content=body, headers=headers).status_code == 422


def test_unknown_agent_names_the_known_ones(server: AgentServerProcess) -> None:
    detail = server.run("mkdir-1", agent_name="gpt").json()["detail"]
    assert "shell" in detail and "oracle" in detail and "nop" in detail


def test_queue_time_does_not_eat_the_agents_time(server: AgentServerProcess, model: ModelStub) -> None:
    """Six trials of over two seconds on two slots: the last waits longer than the agent's four seconds."""
    model.answer = lambda body: Reply("```bash\nmkdir target\n```", delay=2.2)
    with ThreadPoolExecutor(6) as pool:
        replies = list(pool.map(lambda _: run(server, model), range(6)))
    assert {(reply["reward"], reply["exit_status"]) for reply in replies} == {(1.0, "CommandSucceeded")}
    assert max(reply["agent_metrics"]["queue_seconds"] for reply in replies) > 4

"""Task folders and verifiers that are odd but there: none may end more than its own trial, or hide behind a discard."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.harbor_service.harbor_model_stub import ModelStub, Reply, bash
from tests.harbor_service.harbor_server_process import AgentServerProcess, write_task

HEAD = 'schema_version = "1.2"\n[task]\nname = "test/odd"\n'
BROKEN_TOML = {
    "steps-are-a-number": b"steps = 5\n",
    "limit-beyond-a-float": HEAD.encode() + b"[verifier]\ntimeout_sec = 1" + b"0" * 400 + b"\n",
    "not-utf8": b"\xff\xfe\n",
    "nested-too-deep": b"x = " + b"[" * 5000,
    "limit-is-no-number": HEAD.encode() + b"[verifier]\ntimeout_sec = nan\n",
    "asks-for-a-key": HEAD.encode() + b'[environment.env]\nX = "${DAYTONA_API_KEY:-none}"\n',
    "asks-for-a-key-in-its-tests": HEAD.encode() + b'[verifier.env]\nX = "${HARBOR_ADMIN_SECRET}"\n',
    "sections-are-numbers": b"verifier = 3\nagent = 4\nenvironment = 5\n",
}
ODD_TOML = {
    "no-limits": HEAD,
    "limits-of-fractions": HEAD + "[agent]\ntimeout_sec = 0.5\n[verifier]\ntimeout_sec = 30.25\n",
    "no-time-for-the-agent": HEAD + "[agent]\ntimeout_sec = 0\n",
    "huge-limits": HEAD + "[agent]\ntimeout_sec = 1e300\n[verifier]\ntimeout_sec = 1e300\n",
    "endless-limits": HEAD + "[agent]\ntimeout_sec = inf\n[verifier]\ntimeout_sec = inf\n",
}
NO_TIME_TO_JUDGE = {"zero": "0", "negative": "-5"}
# What lies in /logs/verifier after the tests, and the reward that it is worth; None: not readable as one.
REWARDS: dict[str, tuple[str, float | None]] = {
    "negative": ("echo -0.5 > reward.txt", -0.5),
    "more-than-one": ("echo 17 > reward.txt", 17.0),
    "blanks": ("printf ' \\n 0.5 \\n\\n' > reward.txt", 0.5),
    "named": ('echo \'{"reward": 0.25, "style": 1}\' > reward.json', 0.25),
    "single": ("echo '{\"score\": 0.75}' > reward.json", 0.75),
    "verdict": ("echo '{\"reward\": true}' > reward.json", 1.0),
    "json-over-text": ("echo 1 > reward.txt; echo '{\"reward\": 0}' > reward.json", 0.0),
    "nan": ("echo nan > reward.txt", None),
    "infinite": ("echo -inf > reward.txt", None),
    "text": ("echo passed > reward.txt", None),
    "nan-as-json": ("echo '{\"reward\": NaN}' > reward.json", None),
    "text-as-json": ('echo \'{"reward": "1"}\' > reward.json', None),
    "null-as-json": ("echo '{\"reward\": null}' > reward.json", None),
    "bare-number": ("echo 1 > reward.json", None),
    "bare-null": ("echo null > reward.json", None),
    "list": ("echo '[1]' > reward.json", None),
    "nothing-named": ("echo '{}' > reward.json", None),
    "several-without-a-reward": ('echo \'{"a": 1, "b": 0}\' > reward.json', None),
    "nested": ('echo \'{"reward": {"value": 1}}\' > reward.json', None),
    "beyond-a-float": ('echo "{\\"reward\\": 1$(printf \'0%.0s\' {1..400})}" > reward.json', None),
    "half-a-surrogate-pair": ('echo \'{"reward": 1, "\\ud800": 0}\' > reward.json', 1.0),
    "a-thousand-names": (f"echo '{json.dumps({str(n): 0 for n in range(1000)} | {'reward': 1})}' > reward.json", 1.0),
}
STEP = """
[[steps]]
name = "{name}"
[steps.verifier]
timeout_sec = 20.0
"""


def write_steps(root: Path, name: str, **tests: str) -> None:
    """A task of two steps, `one` and `two`; each has tests of its own."""
    toml = f"{HEAD}[environment]\nbuild_timeout_sec = 30.0\n{''.join(STEP.format(name=step) for step in tests)}"
    write_task(root, name, test_sh=None, solve_sh=None, task_toml=toml)
    for step, test_sh in tests.items():
        (root / name / "steps" / step / "tests").mkdir(parents=True)
        (root / name / "steps" / step / "instruction.md").write_text(f"Do step {step}.\n")
        (root / name / "steps" / step / "tests" / "test.sh").write_text(f"#!/bin/bash\n{test_sh}\n")


PAID = "echo 1 > /logs/verifier/reward.txt"


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentServerProcess]:
    folder = tmp_path_factory.mktemp("odd")
    tasks = folder / "tasks"
    for name, content in BROKEN_TOML.items():
        write_task(tasks, name)
        (tasks / name / "task.toml").write_bytes(content)
    for name, toml in ODD_TOML.items():
        write_task(tasks, name, task_toml=toml)
    for name, seconds in NO_TIME_TO_JUDGE.items():
        write_task(tasks, f"judge-{name}", task_toml=f"{HEAD}[verifier]\ntimeout_sec = {seconds}\n")
    for name, (script, _) in REWARDS.items():
        write_task(tasks, f"reward-{name}", test_sh=f"#!/bin/bash\ncd /logs/verifier\n{script}\n")
    write_task(tasks, "sound")
    write_steps(tasks, "paid-twice", one=PAID, two=PAID)
    write_steps(tasks, "silent-in-the-end", one=PAID, two="true")
    process = AgentServerProcess(folder, tasks, "--max-concurrent", "8", "--agent-timeout", "5")
    yield process
    process.close()


def run(server: AgentServerProcess, model: ModelStub, instance_id: str, **fields: Any) -> dict[str, Any]:
    response = server.run(instance_id, model.base_url, **fields)
    assert response.status_code == 200, response.text
    return response.json()


def test_a_task_file_that_nobody_can_read_ends_its_own_trials_only(odd: AgentServerProcess, model: ModelStub) -> None:
    for name in BROKEN_TOML:
        reply = run(odd, model, name)
        assert (reply["reward"], reply["exit_status"]) == (None, "TaskBroken"), (name, reply)
    assert odd.health()["tasks"] >= len(BROKEN_TOML)
    listed = odd.client.post("/tasks", json={"instance_ids": [*BROKEN_TOML, "sound"]}).json()
    assert set(listed["broken"]) == set(BROKEN_TOML)
    assert run(odd, model, "sound")["reward"] == 1.0


def walk(server: AgentServerProcess, model: ModelStub, expected: dict[str, tuple[float | None, str]]) -> None:
    """Trials of all these tasks side by side; their rewards and exit statuses must be as expected."""
    with ThreadPoolExecutor(8) as pool:
        replies = dict(zip(expected, pool.map(lambda name: run(server, model, name), expected), strict=True))
    got = {name: (reply["reward"], reply["exit_status"]) for name, reply in replies.items()}
    assert got == expected
    assert all(len(reply["eval_report"].get("rewards", {})) <= 50 for reply in replies.values())


def test_odd_limits_of_a_task_do_not_keep_it_from_being_solved(odd: AgentServerProcess, model: ModelStub) -> None:
    walk(odd, model, dict.fromkeys(ODD_TOML, (1.0, "CommandSucceeded")))


def test_a_verifier_without_time_is_a_verifier_error(odd: AgentServerProcess, model: ModelStub) -> None:
    walk(odd, model, {f"judge-{name}": (0.0, "VerifierError") for name in NO_TIME_TO_JUDGE})


def test_a_reward_is_one_finite_number_and_everything_else_a_verifier_error(
    odd: AgentServerProcess, model: ModelStub
) -> None:
    unusable = (0.0, "VerifierError")
    worth = {
        name: unusable if reward is None else (reward, "CommandSucceeded") for name, (_, reward) in REWARDS.items()
    }
    walk(odd, model, {f"reward-{name}": expected for name, expected in worth.items()})


def test_steps_that_are_all_paid_are_worth_their_mean(odd: AgentServerProcess, model: ModelStub) -> None:
    model.answer = lambda body: bash("true")
    reply = run(odd, model, "paid-twice")
    assert (reply["reward"], reply["exit_status"]) == (1.0, "CommandSucceeded"), reply
    assert reply["agent_metrics"]["turns"] == 2 and reply["agent_metrics"]["verifier_seconds"] > 0


def test_a_step_whose_verifier_gives_nothing_is_not_left_out_of_the_mean(
    odd: AgentServerProcess, model: ModelStub
) -> None:
    model.answer = lambda body: bash("true")
    reply = run(odd, model, "silent-in-the-end")
    assert (reply["reward"], reply["exit_status"]) == (0.0, "VerifierError"), reply


def test_a_step_that_ran_out_of_time_names_it_and_keeps_the_reward(odd: AgentServerProcess, model: ModelStub) -> None:
    model.answer = lambda body: bash("true") if len(model.requests) == 1 else Reply(delay=30)
    reply = run(odd, model, "paid-twice")
    assert (reply["reward"], reply["exit_status"]) == (1.0, "TimeLimitExceeded"), reply


@pytest.mark.parametrize(
    ("error", "status"),
    [("KeyError", "InfraError"), ("ValidationError", "InfraError"), ("InternalServerError", "ModelEndpointFailed")],
)
def test_a_step_that_failed_without_the_policy_is_discarded_though_harbor_grades(
    odd: AgentServerProcess, model: ModelStub, error: str, status: str
) -> None:
    agent = "tests.harbor_service.failures.raising_agent:RaisingAgent"
    reply = run(odd, model, "paid-twice", agent_name=agent, agent_options={"error": error})
    assert (reply["reward"], reply["exit_status"]) == (None, status), reply
    assert reply["eval_report"]["error"]["type"] == error
    # The same in a task of one step.
    reply = run(odd, model, "sound", agent_name=agent, agent_options={"error": error})
    assert (reply["reward"], reply["exit_status"]) == (None, status), reply

"""The agent server: reachable, large and patient enough, with every task. One that is not ours is only warned about."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import httpx

from disk.token_file import read_token
from launcher.checks.bounded_http import MIB, Reply, call
from launcher.checks.json_object import json_object
from launcher.preflight import Finding, failure, first_three, ok, warning
from swe_agent_function import DEFAULT_TRIAL_TIMEOUT

NAME = "agent server"
TIMEOUT = 3.0  # seconds of one call
_TASKS_IN_ONE_CALL = 200
_TASKS_BUDGET = 3.0  # seconds until the last call begins
_TASKS_BYTES = 4 * MIB  # of one answer
_LONGEST_REASON = 200  # characters
_WITHOUT_LIFETIME = ("docker", "local")  # sandboxes of agent_server.py that end with their trial only
_DOCKER_NETWORKS = 31  # that Docker's default address pools give
_NOT_OURS = "another kind of agent server? the run tries it as it is"


def ask_health(url: str, environment: Mapping[str, str]) -> dict[str, Any] | Finding:
    """What `GET /health` answers, or why there is no answer. `environment` is that of the agent function."""
    address = url.rstrip("/") + "/health"
    way_out = f"start it with `python agent_server.py`, or correct --agent-server-url {url}"
    try:
        headers = bearer(environment)
    except (OSError, ValueError) as error:
        return failure(NAME, f"no token in AGENT_SERVER_TOKEN_FILE ({error})", "name a file that holds the token")
    try:
        reply = call("GET", address, headers=headers, seconds=TIMEOUT)
    except httpx.DecodingError as error:
        return warning(NAME, f"{address} answers something else ({cause(error)})", _NOT_OURS)
    except httpx.HTTPError as error:
        return failure(NAME, f"{address} does not answer ({cause(error)})", way_out)
    if reply.status == 401:
        return failure(
            NAME, f"{address} wants its token (401)", "set AGENT_SERVER_TOKEN_FILE to the file with the server's"
        )
    if reply.status == 404:
        return warning(NAME, f"{address} does not exist (404)", _NOT_OURS)
    if reply.status != 200:
        return failure(NAME, f"{address} answers HTTP {reply.status}", way_out)
    payload = _json_of(reply)
    if payload is None:
        return warning(NAME, f"{address} does not answer a JSON object", _NOT_OURS)
    return payload


def check_agent_server(
    url: str,
    trials: int,
    most_in_flight: int,
    environment: Mapping[str, str],
    sandbox_minutes: tuple[int, int] | None = None,
) -> list[Finding]:
    """`trials` of one rollout, `most_in_flight` at any time, `environment` of the job.

    `sandbox_minutes`: how long a provider must leave an idle sandbox running and a stopped one there.
    """
    health = ask_health(url, environment)
    if isinstance(health, Finding):
        return [health]
    findings = [ok(NAME, f"{url} is there"), *judge_health(health, trials, most_in_flight, environment)]
    return findings if sandbox_minutes is None else [*findings, check_sandbox_lifetime(health, *sandbox_minutes)]


def judge_health(
    health: Mapping[str, Any], trials: int, most_in_flight: int, environment: Mapping[str, str]
) -> list[Finding]:
    return [
        check_room(health, trials, most_in_flight),
        check_patience(health, most_in_flight, environment),
        check_docker_networks(health, most_in_flight),
    ]


def check_room(health: Mapping[str, Any], trials: int, most_in_flight: int) -> Finding:
    """Its places against the trials of a rollout, and against the most that are under way at any time."""
    name = f"{NAME}: trials at once"
    room = _room(health)
    if room is None:
        return warning(
            name, "/health says no usable max_concurrent", f"make sure that it runs {most_in_flight} trials at once"
        )
    if room < trials:
        return failure(
            name,
            f"it runs {room:g} trials at once, a rollout has {trials}",
            f"start it with --max-concurrent {trials} or more, or lower --rollout-batch-size",
        )
    if room < most_in_flight:
        return warning(
            name,
            f"it runs {room:g} trials at once, up to {most_in_flight} can be under way; the others wait in its queue",
            f"start it with --max-concurrent {most_in_flight}",
        )
    return ok(name, f"{room:g}, at most {most_in_flight} are under way")


def check_patience(health: Mapping[str, Any], most_in_flight: int, environment: Mapping[str, str]) -> Finding:
    """The longest trial and its wait in the server's queue, against what the agent function waits."""
    name = f"{NAME}: time limits"
    agent, whole = (_seconds(health.get(key)) for key in ("agent_timeout", "trial_timeout"))
    room = _room(health)
    patience = trial_timeout(environment)
    # The other way round only where a server counts the trial without its agent.
    longest, which = max((whole or 0, "trial_timeout"), (agent or 0, "agent_timeout"))
    if not longest:
        return warning(
            name,
            "/health says no agent_timeout and no trial_timeout",
            f"make sure that its longest trial ends within AGENT_TRIAL_TIMEOUT {patience:g} s",
        )
    agents = f" with agent_timeout {agent:g} s" if which == "trial_timeout" and agent is not None else ""
    if longest >= patience:
        return failure(
            name,
            f"its {which} is {longest:g} s{agents}, this run gives a trial up after AGENT_TRIAL_TIMEOUT {patience:g} s",
            f"set AGENT_TRIAL_TIMEOUT above {longest:g} (--extra-env-vars), or start the server with a shorter "
            "--agent-timeout",
        )
    rounds = math.ceil(most_in_flight / room) if room else 1
    wait = max(0, rounds - 1) * longest
    if longest + wait >= patience:
        return warning(
            name,
            f"with {most_in_flight} trials under way and {room:g} at once one can wait {wait:g} s in its queue; with "
            f"its {which} of {longest:g} s that is beyond AGENT_TRIAL_TIMEOUT {patience:g} s",
            f"start the server with --max-concurrent {most_in_flight}, or set AGENT_TRIAL_TIMEOUT above "
            f"{longest + wait:g} (--extra-env-vars)",
        )
    if "trial_timeout" in health and whole is None:
        return warning(
            name,
            f"its longest trial has no end, this run gives one up after AGENT_TRIAL_TIMEOUT {patience:g} s",
            "give every task's build and verifier a finite limit in its task.toml",
        )
    return ok(name, f"{which} {longest:g} s, below AGENT_TRIAL_TIMEOUT {patience:g} s")


def check_docker_networks(health: Mapping[str, Any], most_in_flight: int) -> Finding:
    """Each trial's containers get a network of their own."""
    name = f"{NAME}: sandboxes"
    environment = health.get("environment")
    if isinstance(environment, str) and environment != "docker":
        return ok(name, environment[:_LONGEST_REASON])
    room = _room(health)
    at_once = int(min(room, most_in_flight)) if room else most_in_flight
    if at_once < _DOCKER_NETWORKS:
        return ok(name, f"at most {at_once} at once")
    condition = "" if environment else " if its sandboxes are Docker containers"
    return warning(
        name,
        f"{at_once} trials at once need as many Docker networks{condition}; Docker's default address pools give about "
        f"{_DOCKER_NETWORKS}",
        "widen `default-address-pools` in the agent host's /etc/docker/daemon.json, e.g. "
        '[{"base": "10.200.0.0/16", "size": 24}]',
    )


def check_sandbox_lifetime(health: Mapping[str, Any], wanted_stop_minutes: int, wanted_delete_minutes: int) -> Finding:
    """Minutes after which the provider stops an idle sandbox (0: never) and deletes a stopped one (below 0: never)."""
    name = f"{NAME}: sandbox lifetime"
    # None: our server, started without them, takes what each request asks for.
    asked = {"sandbox_auto_stop_minutes": wanted_stop_minutes, "sandbox_auto_delete_minutes": wanted_delete_minutes}
    stop, delete = (
        _number(minutes if key in health and health[key] is None else health.get(key)) for key, minutes in asked.items()
    )
    way_out = (
        f"start agent_server.py with --environment-option auto_stop_interval_mins={wanted_stop_minutes} "
        f"--environment-option auto_delete_interval_mins={wanted_delete_minutes}"
    )
    wanted = f"this run needs {wanted_stop_minutes} and {wanted_delete_minutes}"
    if (environment := health.get("environment")) in _WITHOUT_LIFETIME:
        return warning(
            name,
            f"its sandboxes are {environment} and not Daytona's, whose lifetime was not checked; {wanted}",
            "for the launch start agent_server.py with --environment daytona",
        )
    if (stop is not None and 0 < stop < wanted_stop_minutes) or (
        delete is not None and 0 <= delete < wanted_delete_minutes
    ):
        said = " and ".join(
            f"{what} after {minutes:g}" for what, minutes in (("stop", stop), ("delete", delete)) if minutes is not None
        )
        return failure(name, f"its sandboxes {said} minutes, {wanted} to stop and to delete", way_out)
    if stop is None or delete is None:
        return warning(name, f"/health does not say after how many minutes sandboxes stop and go; {wanted}", way_out)
    return ok(name, f"stop after {stop:g} minutes, delete after {delete:g}")


def check_tasks(url: str, instance_ids: Sequence[str], environment: Mapping[str, str]) -> Finding:
    """Asks `POST /tasks` for every instance_id, as many as it answers in a few seconds."""
    name = f"{NAME}: tasks"
    address = url.rstrip("/") + "/tasks"
    missing: list[str] = []
    broken: dict[str, str] = {}
    asked, deadline = 0, time.monotonic() + _TASKS_BUDGET
    try:
        headers = bearer(environment)
        while asked < len(instance_ids) and time.monotonic() < deadline:
            ids = list(instance_ids[asked : asked + _TASKS_IN_ONE_CALL])
            body = {"instance_ids": ids}
            reply = call("POST", address, headers=headers, body=body, seconds=TIMEOUT, most_bytes=_TASKS_BYTES)
            answer = _tasks_of(reply, ids)
            if answer is None:
                return warning(
                    name,
                    f"{address} does not say which tasks it has (HTTP {reply.status})",
                    "make sure that it has the task of every instance_id",
                )
            missing += answer[0]
            broken |= answer[1]
            asked += len(ids)
    except (httpx.HTTPError, OSError, ValueError) as error:
        return warning(
            name,
            f"{address} answered for {asked} of {len(instance_ids)} tasks ({cause(error)})",
            "make sure that it has the task of every instance_id",
        )
    if missing or broken:
        parts = [f"{len(missing)} are missing: {first_three(missing)}"] if missing else []
        if broken:
            parts.append(f"{len(broken)} are broken: {first_three([f'{i} ({why})' for i, why in broken.items()])}")
        return failure(
            name,
            f"of {asked} tasks {'; '.join(parts)}",
            "start it with the --harbor-tasks-dir that the prompts were made from, or make the prompts again",
        )
    if asked < len(instance_ids):
        return warning(
            name,
            f"it has the first {asked} of {len(instance_ids)} tasks; {_TASKS_BUDGET:g} s were over before the others",
            "make sure that it has the task of every instance_id",
        )
    return ok(name, f"it has all {asked}")


def bearer(environment: Mapping[str, str]) -> dict[str, str]:
    """As the agent function sends it; raises OSError or ValueError where the file holds no token."""
    token_file = environment.get("AGENT_SERVER_TOKEN_FILE")
    if not token_file:
        return {}
    return {"Authorization": f"Bearer {read_token(Path(token_file))}"}


def trial_timeout(environment: Mapping[str, str]) -> float:
    """Seconds, as the agent function takes them: the default where the variable says none."""
    try:
        seconds = float(environment.get("AGENT_TRIAL_TIMEOUT", ""))
    except ValueError:
        return DEFAULT_TRIAL_TIMEOUT
    return seconds if 0 < seconds < math.inf else DEFAULT_TRIAL_TIMEOUT


def cause(error: Exception) -> str:
    """`ConnectError: Connection refused`, without the address that the sentence names already."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _json_of(reply: Reply) -> dict[str, Any] | None:
    try:
        return json_object(reply.body)
    except ValueError:
        return None


def _tasks_of(reply: Reply, ids: Sequence[str]) -> tuple[list[str], dict[str, str]] | None:
    """Which of `ids` are missing, and which are broken and why; None where the answer does not tell."""
    payload = (_json_of(reply) if reply.status == 200 else None) or {}
    missing, broken = payload.get("missing"), payload.get("broken", {})
    if not isinstance(missing, list) or not isinstance(broken, dict):
        return None
    named = [*cast(list[object], missing), *cast(dict[str, object], broken)]
    if not all(isinstance(name, str) and name in ids for name in named):
        return None
    reasons = {name: str(why)[:_LONGEST_REASON] for name, why in cast(dict[str, object], broken).items()}
    return cast(list[str], missing), reasons


def _number(value: object) -> float | None:
    """Finite: only such come out of `json_object`, and `health` need not come from there."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if abs(value) <= sys.float_info.max else None


def _room(health: Mapping[str, Any]) -> float | None:
    room = _number(health.get("max_concurrent"))
    return room if room is not None and room >= 1 else None


def _seconds(value: object) -> float | None:
    seconds = _number(value)
    return seconds if seconds is not None and seconds > 0 else None

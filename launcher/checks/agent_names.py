"""The agents that the rows name: whether the agent server can run each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import httpx

from launcher.checks.agent_server import NAME as AGENT_SERVER
from launcher.checks.agent_server import bearer, cause, check_tasks
from launcher.checks.bounded_http import MIB, Reply, call
from launcher.checks.json_object import json_object
from launcher.checks.prompts import Asked, read_asked
from launcher.preflight import Finding, Status, failure, first_three, ok, warning

_NAME = f"{AGENT_SERVER}: agents"
_TIMEOUT = 10.0  # seconds; the server imports an agent at its first use, and one with LiteLLM takes some
_LONGEST_REASON = 400  # characters; it lists the names that there are
_UNSURE = "make sure that it can run"
_CORRECT = "correct agent_name in the prompt data (download_and_process_data.py --agent-name)"


def with_asked(findings: list[Finding], url: str, rows: Path | None, environment: Mapping[str, str]) -> list[Finding]:
    """`findings` on the agent server, and what the rows ask of it unless nothing answers there."""
    if rows is None or [finding.status for finding in findings] == [Status.FAILURE]:
        return findings
    return [*findings, *check_asked(url, read_asked(rows), environment)]


def check_asked(url: str, asked: Asked, environment: Mapping[str, str]) -> list[Finding]:
    """What the rows ask of the server: every task, every agent."""
    tasks, agents = asked.instance_ids, asked.agent_names
    return [
        *([check_tasks(url, tasks, environment)] if tasks else []),
        *([check_agents(url, agents, environment)] if agents else []),
    ]


def check_agents(url: str, names: Sequence[str], environment: Mapping[str, str]) -> Finding:
    """Asks `POST /tasks` for each of `names`; `environment` is that of the agent function."""
    address = url.rstrip("/") + "/tasks"
    way_out = f"{_UNSURE} {first_three(list(names))}"
    body: dict[str, Any] = {"instance_ids": [], "agent_names": list(names)}
    try:
        reply = call("POST", address, headers=bearer(environment), body=body, seconds=_TIMEOUT, most_bytes=MIB)
    except (httpx.HTTPError, OSError, ValueError) as error:
        return warning(_NAME, f"{address} does not say which agents it can run ({cause(error)})", way_out)
    refused = _refused_of(reply, names)
    if refused is None:
        return warning(_NAME, f"{address} does not say which agents it can run (HTTP {reply.status})", way_out)
    return _judge(names, refused)


def check_own_agents(names: Sequence[str]) -> list[Finding]:
    """The same of the server that `--engine local` starts on this machine, before it is started."""
    from harbor_service.agents import refused_agents

    # A module is found on the server's own path.
    refused = refused_agents((name for name in names if ":" not in name), {}, local=True)
    return [_judge(names, refused)] if names else []


def _judge(names: Sequence[str], refused: Mapping[str, str]) -> Finding:
    if refused:
        reasons = "; ".join(refused[name][:_LONGEST_REASON] for name in list(refused)[:3])
        return failure(_NAME, f"it refuses {first_three(list(refused))}: {reasons}", _CORRECT)
    return ok(_NAME, f"it can run {first_three(list(names))}")


def _refused_of(reply: Reply, names: Sequence[str]) -> dict[str, str] | None:
    """None where the answer does not tell."""
    try:
        answer = json_object(reply.body) if reply.status == 200 else {}
    except ValueError:
        return None
    refused = answer.get("refused_agents")
    if not isinstance(refused, dict):
        return None
    reasons = cast(dict[str, object], refused)
    return {name: str(why) for name, why in reasons.items()} if set(reasons) <= set(names) else None

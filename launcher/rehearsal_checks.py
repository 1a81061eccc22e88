"""Checks of a rehearsed plan: those of a launch that concern data, agent server, tasks, addresses and time limits."""

from __future__ import annotations

from collections.abc import Mapping

from launcher.checks.agent_names import with_asked
from launcher.checks.agent_server import bearer
from launcher.checks.daytona import check_server_and_lifetimes
from launcher.checks.key_files import check_key_file, key_files
from launcher.checks.network import check_external_host
from launcher.checks.ports import check_ports
from launcher.checks.prompts import check_held_out
from launcher.checks.way_back import check_way_back
from launcher.options import LocalOptions
from launcher.preflight import Check, Finding, Status
from launcher.rehearsal import Rehearsal
from local_engine.config import LocalRunConfig


def rehearsal_checks(
    rehearsal: Rehearsal, config: LocalRunConfig, options: LocalOptions, environment: Mapping[str, str]
) -> list[Check]:
    """`environment` is that of the agent function."""
    url, host = str(config.agent_server_url), options.machines.session_server_external_host
    checks = [
        Check("agent server", lambda: check_service(config, url, environment)),
        Check("session server", lambda: check_session_server(rehearsal, config, url, environment)),
        *(
            Check(f"key file {name}", lambda name=name, path=path: check_key_file(name, path))
            for name, path in key_files(config.extra_env).items()
        ),
    ]
    if (rows := config.prompt_data) is not None:
        checks.append(Check("held-out rows", lambda: check_held_out(rows)))
    if host is not None:
        checks.append(Check("external host", lambda: check_external_host(host, url)))
    return checks


def check_service(config: LocalRunConfig, url: str, environment: Mapping[str, str]) -> list[Finding]:
    """The agent server, and its tasks against the prompts'; the sandboxes' lifetimes where the plan has any."""
    trials = config.rollout_batch_size * config.n_samples_per_prompt
    findings = check_server_and_lifetimes(url, trials, trials, environment)
    return with_asked(findings, url, config.prompt_data, environment)


def check_session_server(
    rehearsal: Rehearsal, config: LocalRunConfig, url: str, environment: Mapping[str, str]
) -> list[Finding]:
    """The plan's ports free on this machine, and reached by the agent server under the plan's address."""
    ports, address = rehearsal.plan.session_ports, config.session_address
    findings = check_ports({"session servers": ports}, url)
    if any(finding.status is Status.FAILURE for finding in findings):
        return findings
    try:
        headers = bearer(environment)
    except (OSError, ValueError):
        return findings  # said by the check of the agent server
    return [*findings, *check_way_back(address.bind, address.host, ports, url, headers)]

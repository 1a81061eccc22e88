"""What a run asks of Daytona, for a rehearsal that replaces it: lifetimes, the key, and whether Daytona takes it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import httpx

from disk.regular_file import read_regular
from launcher.checks.agent_server import NAME as AGENT_SERVER
from launcher.checks.agent_server import cause, check_agent_server
from launcher.checks.bounded_http import call
from launcher.checks.key_files import check_key_file
from launcher.preflight import Finding, Status, failure, ok, warning
from launcher.secrets import has_credentials

NAME = "Daytona"
KEY = "DAYTONA_API_KEY"
_API = "https://app.daytona.io/api"  # where DAYTONA_API_URL names no other
_SECONDS = 5.0
_LONGEST_KEY = 4096  # bytes
_DIGITS = 9
_PUT_IT = f"before the launch set {KEY} or {KEY}_FILE where the agent server runs"


def asked_minutes(environment: Mapping[str, str]) -> tuple[int | None, int | None]:
    """What SANDBOX_AUTO_STOP_MINUTES and SANDBOX_AUTO_DELETE_MINUTES say; None where they are not set.

    Raises ValueError for one that is no number above 0, of which the agent function makes nothing.
    """
    stop, delete = (_minutes(environment, f"SANDBOX_AUTO_{what}_MINUTES") for what in ("STOP", "DELETE"))
    return stop, delete


def _minutes(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS and int(text)):
        raise ValueError(f"{name}={text[:40]!r} is no number of minutes, so the server's own lifetimes would hold")
    return int(text)


def check_server_and_lifetimes(
    url: str, trials: int, most_in_flight: int, environment: Mapping[str, str]
) -> list[Finding]:
    """The agent server, and its sandboxes' lifetimes against those that `environment` makes each request ask for."""
    try:
        stop, delete = asked_minutes(environment)
    except ValueError as error:
        return [failure(AGENT_SERVER, str(error), "correct it, or leave it out of --extra-env-vars")]
    lifetime = None if stop is None or delete is None else (stop, delete)
    return check_agent_server(url, trials, most_in_flight, environment, lifetime)


def check_daytona_lifetimes(stop_minutes: int, delete_minutes: int | None, trial_seconds: float) -> Finding:
    """Minutes until an idle sandbox stops (0: never) and a stopped one is deleted (below 0: never; None: the server's
    own), as in the plan."""
    name = f"{NAME}: lifetimes"
    trial = trial_seconds / 60
    if 0 < stop_minutes < trial:
        return failure(
            name,
            f"a sandbox would stop after {stop_minutes} idle minutes, a trial may take {trial:g}",
            "leave SANDBOX_AUTO_STOP_MINUTES out of --extra-env-vars, or raise it",
        )
    deleted = "" if delete_minutes is None else f"; delete {delete_minutes} later"
    return ok(name, f"stop after {stop_minutes} idle minutes, a trial takes at most {trial:g}{deleted}")


def check_daytona_key(environment: Mapping[str, str]) -> Finding:
    """Asks Daytona only where a key is here: who the key is, which makes and changes nothing."""
    name, key, path = f"{NAME}: key", environment.get(KEY, ""), environment.get(f"{KEY}_FILE")
    if not key and path:
        found = check_key_file(f"{KEY}_FILE", Path(path).expanduser())
        if found.status is Status.FAILURE:
            return found
        try:
            key = read_regular(Path(path).expanduser(), _LONGEST_KEY).decode("utf-8", "replace").strip()
        except OSError as error:
            return failure(name, f"{path} holds no key ({error.strerror})", f"correct {KEY}_FILE")
    if not key:
        return warning(name, f"{KEY} is not set here, so Daytona was not asked", _PUT_IT)
    if not key.isascii() or not key.isprintable():
        return failure(name, f"{KEY} holds what no key can hold", "correct it")
    api = environment.get("DAYTONA_API_URL") or _API
    if has_credentials(api):
        return failure(name, "DAYTONA_API_URL carries a user or password", "give it without them")
    url = f"{api.rstrip('/')}/api-keys/current"
    try:
        reply = call("GET", url, headers={"Authorization": f"Bearer {key}"}, seconds=_SECONDS)
    except httpx.HTTPError as error:
        return warning(name, f"{url} does not answer ({cause(error)}), so the key was not tried", _PUT_IT)
    if reply.status in (401, 403):
        return failure(name, f"{url} refuses the key ({reply.status})", "make a new one in Daytona's dashboard")
    if reply.status != 200:
        return warning(name, f"{url} answers HTTP {reply.status}, so the key was not tried", _PUT_IT)
    return ok(name, f"{url} takes it")

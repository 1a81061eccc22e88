"""What a provider is told when a sandbox is made: how long it may live, and nothing of our keys.

Real: request, runner, Harbor's Trial and its environment classes. STUB: the provider's client, at the call that would
make the sandbox; it notes what it was asked for and ends the trial. No sandbox of a provider was ever started here.
"""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import harbor.environments.daytona.environment as daytona
import harbor.environments.e2b as e2b
import harbor.environments.modal as modal
import pytest

from harbor_service.environments import environment_config
from harbor_service.provider_keys import PROVIDER_KEYS
from harbor_service.run_request import RunRequest
from harbor_service.sandbox_lifetime import fixed_lifetime, with_lifetime
from harbor_service.task_store import TaskStore
from harbor_service.trial_folders import TrialFolders
from harbor_service.trial_runner import TrialRunner
from tests.harbor_service.harbor_server_process import write_task

# Build 30, setup 360, agent 1800 and verifier 20 seconds are 37 minutes; half an hour comes on top.
LONGEST_MINUTES = 37 + 30
DAY_MINUTES = 24 * 60


class Asked(BaseException):
    """Ends the trial where the sandbox would be made; no code of Harbor's takes it for a failure to try again."""


class Provider:
    """STUB: stands for a client and each of its calls; `asked` holds the arguments of the call that makes a sandbox."""

    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}

    async def create(self, *args: Any, **kwargs: Any) -> None:
        self.asked = kwargs
        raise Asked

    async def found(self, *args: Any, **kwargs: Any) -> object:
        return SimpleNamespace()


def stub_daytona(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daytona, "AsyncDaytona", lambda *args: provider)
    monkeypatch.setattr(daytona.DaytonaClientManager, "_instance", None)
    # Daytona's client registers a clean-up for the end of the process.
    monkeypatch.setattr(daytona.atexit, "register", lambda function: function)


def stub_e2b(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(e2b, "AsyncSandbox", provider)


def stub_modal(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modal, "Sandbox", SimpleNamespace(create=SimpleNamespace(aio=provider.create)))
    monkeypatch.setattr(modal, "App", SimpleNamespace(lookup=SimpleNamespace(aio=provider.found)))


STUBS: dict[str, Callable[[Provider, pytest.MonkeyPatch], None]] = {
    "daytona": stub_daytona,
    "e2b": stub_e2b,
    "modal": stub_modal,
}
BEFORE = {"e2b": ("prebuilt_template_id=ready",)}  # a template is built by calls of its own


async def ask(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...] = (), **request: Any
) -> dict[str, Any]:
    """What the provider is asked for when the trial's sandbox is made."""
    provider = Provider()
    STUBS[name](provider, monkeypatch)
    tasks = tmp_path / "tasks"
    write_task(tasks, "mkdir-1")
    runner = TrialRunner(
        tasks=TaskStore(tasks),
        environment=environment_config(name, (*BEFORE.get(name, ()), *options)),
        folders=TrialFolders(tmp_path / "trials", keep_seconds=1e9, keep_bytes=1e12),
        agent_timeout=1800,
        setup_timeout=360,
    )
    runner.folders.root.mkdir()
    body = RunRequest(instance_id="mkdir-1", agent_name="oracle", **request)
    with pytest.raises(Asked):
        await runner.run(tasks / "mkdir-1", body, await runner.agent_of(body), "mkdir-1__1")
    return provider.asked


@pytest.mark.parametrize(
    ("options", "request_", "stop", "delete"),
    [
        ((), {}, LONGEST_MINUTES, DAY_MINUTES),
        ((), {"sandbox_auto_stop_minutes": 150, "sandbox_auto_delete_minutes": 60}, 150, 60),
        (("auto_stop_interval_mins=5", "auto_delete_interval_mins=0"), {"sandbox_auto_stop_minutes": 150}, 5, 0),
    ],
)
async def test_daytona_stops_an_idle_sandbox_and_deletes_a_stopped_one(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    request_: dict[str, int],
    stop: int,
    delete: int,
) -> None:
    params = (await ask("daytona", tmp_path, monkeypatch, options, **request_))["params"]
    assert (params.auto_stop_interval, params.auto_delete_interval) == (stop, delete)


@pytest.mark.parametrize(
    ("options", "request_", "seconds"),
    [((), {}, 3600), ((), {"sandbox_auto_stop_minutes": 5}, 300), (("sandbox_timeout_sec=900",), {}, 900)],
)
async def test_e2b_ends_a_sandbox_that_nobody_renews(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    request_: dict[str, int],
    seconds: int,
) -> None:
    assert (await ask("e2b", tmp_path, monkeypatch, options, **request_))["timeout"] == seconds


@pytest.mark.parametrize(
    ("options", "request_", "life", "idle"),
    [
        ((), {}, LONGEST_MINUTES * 60, None),
        ((), {"sandbox_auto_stop_minutes": 5}, LONGEST_MINUTES * 60, 300),
        (("sandbox_timeout_secs=600",), {}, 600, None),
    ],
)
async def test_modal_ends_a_sandbox_after_the_longest_trial(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    request_: dict[str, int],
    life: int,
    idle: int | None,
) -> None:
    asked = await ask("modal", tmp_path, monkeypatch, options, **request_)
    assert (asked["timeout"], asked["idle_timeout"]) == (life, idle)


@pytest.mark.parametrize("name", STUBS)
async def test_no_key_goes_into_a_providers_sandbox(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in (*PROVIDER_KEYS, "HARBOR_ADMIN_SECRET", "AGENT_SERVER_TOKEN"):
        monkeypatch.setenv(key, f"canary-{key}")
    asked = await ask(name, tmp_path, monkeypatch)
    params = asked.get("params")
    assert asked
    assert "canary" not in repr((asked, vars(params) if params is not None else None))


def test_a_task_without_an_end_gets_a_day() -> None:
    endless = with_lifetime(environment_config("daytona"), None, None, float("inf"))
    assert endless.kwargs["auto_stop_interval_mins"] == DAY_MINUTES + 30
    assert with_lifetime(environment_config("modal"), None, None, float("inf")).kwargs == {
        "sandbox_timeout_secs": DAY_MINUTES * 60
    }


def test_an_environment_without_such_limits_is_left_alone() -> None:
    for name in ("local", "docker"):
        assert with_lifetime(environment_config(name), 150, 1440, 60.0).kwargs == {}


def test_health_tells_the_minutes_that_the_server_has_set() -> None:
    options = ["auto_stop_interval_mins=146", "auto_delete_interval_mins=1440", "cpus=2"]
    told = fixed_lifetime("daytona", options)
    assert told == {"sandbox_auto_stop_minutes": 146, "sandbox_auto_delete_minutes": 1440}
    assert set(fixed_lifetime("daytona", ["auto_stop_interval_mins=soon"]).values()) == {None}
    assert fixed_lifetime("docker", options) == {}

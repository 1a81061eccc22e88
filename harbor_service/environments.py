"""From `--environment` and `--environment-option` to Harbor's environment configuration."""

# pyright: reportMissingTypeStubs=false
# Harbor is typed but has no marker file that says so.

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from harbor.environments.factory import EnvironmentFactory
from harbor.models.environment_type import EnvironmentType
from harbor.models.trial.config import EnvironmentConfig

from sandbox.leftovers import remove_leftovers
from sandbox.trial_dir import default_base_dir
from sandbox.unsafe import unsafe_base_dir

LOCAL: Final = "local"
LOCAL_IMPORT_PATH: Final = "sandbox.environment:LocalEnvironment"
UNSAFE_IMPORT_PATH: Final = "sandbox.unsafe:UnsafeEnvironment"
PROVIDERS: Final = ("docker", "daytona", "e2b", "modal")


class BadEnvironment(ValueError):
    """The environment is unknown or cannot run on this machine."""


def environment_config(name: str, options: Sequence[str] = (), *, unsafe: bool = False) -> EnvironmentConfig:
    """Harbor's configuration for `name` with `options`, each KEY=VALUE; a value that is JSON is read as JSON.

    `unsafe`: the local environment without its sandbox.

    Raises:
        BadEnvironment: an unknown name or an option without `=`.
    """
    kwargs = dict(_option(text) for text in options)
    if unsafe:
        if name != LOCAL:
            raise BadEnvironment(f"--unsafe-no-sandbox goes with --environment {LOCAL}, not with {name}")
        return EnvironmentConfig(import_path=UNSAFE_IMPORT_PATH, kwargs=kwargs)
    if name == LOCAL:
        return EnvironmentConfig(import_path=LOCAL_IMPORT_PATH, kwargs=kwargs)
    if ":" in name:
        return EnvironmentConfig(import_path=name, kwargs=kwargs)
    if name in PROVIDERS:
        return EnvironmentConfig(type=EnvironmentType(name), kwargs=kwargs)
    known = ", ".join((LOCAL, *PROVIDERS))
    raise BadEnvironment(f"unknown environment {name!r}; known: {known}, or MODULE:CLASS of your own")


def check_environment(config: EnvironmentConfig) -> None:
    """Ask the environment whether it can work here, before anything starts.

    Raises:
        BadEnvironment: with the environment's own reason.
    """
    try:
        EnvironmentFactory.run_preflight(config.type, config.import_path, config.kwargs)
    except SystemExit as stop:
        # Harbor's providers report a missing program or credential by ending the process.
        raise BadEnvironment(str(stop.code)) from stop
    except (ImportError, OSError, RuntimeError, ValueError, TypeError) as error:
        raise BadEnvironment(f"{type(error).__name__}: {error}") from error


def clear_leftovers(config: EnvironmentConfig) -> list[str]:
    """Remove what a killed server's local sandboxes left on disk; answers the names of the folders."""
    defaults = {LOCAL_IMPORT_PATH: default_base_dir, UNSAFE_IMPORT_PATH: unsafe_base_dir}
    default = defaults.get(config.import_path or "")
    if default is None:
        return []
    base_dir: str | None = config.kwargs.get("base_dir")
    return remove_leftovers(Path(base_dir) if base_dir else default())


def with_lifetime(config: EnvironmentConfig, stop: int | None, delete: int | None) -> EnvironmentConfig:
    """`config` with the minutes that a run asks for, where the provider has such limits and the server sets none."""
    if config.type is not EnvironmentType.DAYTONA:
        return config
    asked = {"auto_stop_interval_mins": stop, "auto_delete_interval_mins": delete}
    kwargs = {name: minutes for name, minutes in asked.items() if minutes is not None} | config.kwargs
    return config.model_copy(update={"kwargs": kwargs})


def sandbox_lifetime(name: str, options: Sequence[str] = ()) -> dict[str, int | None]:
    """Minutes after which the provider stops an idle sandbox and deletes a stopped one; None: what the run asks for."""
    if name != EnvironmentType.DAYTONA.value:
        return {}
    given = dict(_option(text) for text in options)
    minutes = {what: given.get(f"auto_{what}_interval_mins") for what in ("stop", "delete")}
    return {
        f"sandbox_auto_{what}_minutes": value if isinstance(value, int) else None for what, value in minutes.items()
    }


def _option(text: str) -> tuple[str, Any]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise BadEnvironment(f"environment option {text!r} must be KEY=VALUE")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value

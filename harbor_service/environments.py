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
    kwargs = dict(environment_option(text) for text in options)
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


def environment_option(text: str) -> tuple[str, Any]:
    """Name and value of KEY=VALUE. Raises BadEnvironment."""
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise BadEnvironment(f"environment option {text!r} must be KEY=VALUE")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value

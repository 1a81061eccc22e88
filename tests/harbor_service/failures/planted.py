"""Errors by their name: the real class where one can be found, raised for real where it cannot be made by hand."""

import importlib
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harbor.models.trial.error_policy import ERROR_POLICIES
from pydantic import TypeAdapter

# Where the names of the exit status table come from. Imported with the server, not while trials' clocks run.
_MODULES = tuple(
    map(
        importlib.import_module,
        (
            "harbor.agents.installed.base",
            "harbor.environments.base",
            "harbor.trial.errors",
            "harbor.verifier.verifier",
            "harbor_service.model_client",
            "sandbox.bubblewrap",
            "sandbox.dockerfile",
            "sandbox.limits",
            "litellm.exceptions",
            "openai",
            "builtins",
        ),
    )
)
_BY_DOING: dict[str, Callable[[], Any]] = {
    "FileNotFoundError": lambda: Path("/nowhere").read_text(),
    "NotADirectoryError": lambda: list(Path("/dev/null").iterdir()),
    "UnicodeDecodeError": lambda: b"\xff".decode(),
    "ValidationError": lambda: TypeAdapter(int).validate_python("one"),
    "TOMLDecodeError": lambda: tomllib.loads("="),
}


def raise_planted(name: str) -> None:
    """Raise the error of that name.

    Raises AssertionError when no module has a class of that name: a row whose exception nobody raises is a wrong row.
    """
    if name in _BY_DOING:
        _BY_DOING[name]()
    for module in _MODULES:
        found: object = getattr(module, name, None)
        if isinstance(found, type) and issubclass(found, Exception):
            raise _plain(name, found)
    if name in ERROR_POLICIES:  # a name that Harbor keeps for results on disk
        raise _plain(name, Exception)
    raise AssertionError(f"no exception is called {name}")


def _plain(name: str, base: type[Exception]) -> Exception:
    """An error of a class like `base`, without the arguments that each client's errors want."""
    methods = {"__init__": lambda self: None, "__str__": lambda self: "planted"}
    return type(name, (base,), methods)()

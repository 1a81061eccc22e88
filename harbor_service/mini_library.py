"""What we use of the mini-swe-agent library, imported without its side effects."""

# ruff: noqa: E402
# pyright: reportUnknownVariableType=false
# The library's settings must be in place before its first import; its dicts have no types inside.

import functools
import importlib
import os
import tempfile
from importlib.metadata import version
from typing import Any

_SETTINGS = ("MSWEA_SILENT_STARTUP", "MSWEA_GLOBAL_CONFIG_DIR")


def _import_quietly() -> None:
    """No banner, no folder in the user's home, and nothing of its `.env` file in this process."""
    before = {name: os.environ.get(name) for name in _SETTINGS}
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(dict(zip(_SETTINGS, ("1", folder), strict=True)))
        try:
            importlib.import_module("minisweagent")
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


_import_quietly()

import yaml
from jinja2 import Template
from jinja2.sandbox import ImmutableSandboxedEnvironment
from minisweagent.agents import default
from minisweagent.agents.default import DefaultAgent
from minisweagent.config import builtin_config_dir
from minisweagent.exceptions import FormatError, Submitted
from minisweagent.models.utils import actions_text, actions_toolcall
from minisweagent.models.utils.actions_text import format_observation_messages, parse_regex_actions
from minisweagent.models.utils.actions_toolcall import (
    BASH_TOOL,
    format_toolcall_observation_messages,
    parse_toolcall_actions,
)


class _SandboxedTemplate(Template):
    """A template that reaches nothing but its variables: those of a record come from data sets."""

    environment_class = ImmutableSandboxedEnvironment


for _module in (default, actions_text, actions_toolcall):
    assert _module.__dict__["Template"] is Template, "mini-swe-agent makes its templates in another way"
    _module.__dict__["Template"] = _SandboxedTemplate

MINI_VERSION = version("mini-swe-agent")


@functools.lru_cache
def config_named(name: str) -> dict[str, Any]:
    """One of the configurations that come with the package: prompts, templates, environment variables."""
    return yaml.safe_load((builtin_config_dir / f"{name}.yaml").read_text(encoding="utf-8"))


__all__ = [
    "BASH_TOOL",
    "MINI_VERSION",
    "DefaultAgent",
    "FormatError",
    "Submitted",
    "config_named",
    "format_observation_messages",
    "format_toolcall_observation_messages",
    "parse_regex_actions",
    "parse_toolcall_actions",
]

"""`--argument-changes`: where an installation cannot take what a recipe passes, each difference with its reason.

JSON files of two objects, either of which may be missing:

    {"leave_out": {"--moe-grouped-gemm": "no Transformer Engine here"},
     "set": {"--transformer-impl": {"values": ["local"], "reason": "no Transformer Engine here"}}}

`set` replaces the values of a flag in its place, or adds the flag; a flag without a value has an empty list. The plan's
placement follows, its estimate of the memory stays that of the recipe. What an option stands for, the functions of
this repository and secrets are not for such a file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, cast

from launcher.checks.json_object import is_process_text
from launcher.errors import OptionsError
from launcher.miles.capabilities import grouped
from launcher.option_file import read_option_file
from launcher.secrets import shown_name, validate_no_credentials, validate_no_secret

_OPTION = "--argument-changes"
_LEAVE_OUT, _SET = "leave_out", "set"
_FLAG = re.compile(r"--[A-Za-z0-9][A-Za-z0-9_.-]*")
_HOOK = "the functions of this repository, on which outcomes, discards and their numbers rest"
# Flags of Miles that something of the launcher stands for under another name -> what that is.
SPOKEN_FOR: Mapping[str, str] = {
    "--save": "--save-dir",
    "--load": "--resume and --load-dir",
    "--lora-adapter-path": "--load-dir",
    "--ref-load": "the choice of the launcher",
    "--dump-details": "--save-traces-dir",
    "--debug-rollout-only": "--mode",
    "--use-wandb": "--wandb-project",
    "--wandb-group": "--wandb-run-name",
    "--use-session-server": "--session-server-workers",
    "--fully-async": "the choice of the launcher",
    **dict.fromkeys(
        (
            *("--custom-agent-function-path", "--custom-generate-function-path", "--custom-rm-path"),
            *("--rollout-function-path", "--custom-rollout-log-function-path"),
        ),
        _HOOK,
    ),
}


@dataclass(frozen=True)
class Setting:
    """What a flag is set to, and why."""

    values: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class ArgumentChanges:
    """Flag -> reason, and flag -> values with a reason."""

    leave_out: Mapping[str, str] = field(default_factory=dict[str, str])
    set: Mapping[str, Setting] = field(default_factory=dict[str, Setting])

    def applied(self, arguments: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
        """The arguments as changed, and a sentence for every difference that this made."""
        kept: list[str] = []
        notes: list[str] = []
        there: set[str] = set()
        for flag, values in grouped(arguments):
            there.add(flag)
            if flag in self.leave_out:
                notes.append(f"{_shown(flag, values)} is left out: {self.leave_out[flag]}")
                continue
            setting = self.set.get(flag)
            if setting is not None and list(setting.values) != values:
                notes.append(f"{_shown(flag, values)} becomes {_shown(flag, setting.values)}: {setting.reason}")
            kept += [flag, *(values if setting is None else setting.values)]
        for flag, setting in self.set.items():
            if flag not in there:
                notes.append(f"{_shown(flag, setting.values)} is added: {setting.reason}")
                kept += [flag, *setting.values]
        return tuple(kept), notes


def read_changes(paths: Sequence[str], options: Set[str]) -> ArgumentChanges:
    """The changes of all files. `options` are the launcher's own flags, which are the way to set those.

    Raises OptionsError: not such a file, a flag without a reason, one that the launcher has an option for, or one that
    is named twice.
    """
    leave_out: dict[str, str] = {}
    settings: dict[str, Setting] = {}
    for path in paths:
        changes = _read(path)
        for flag in (*changes.leave_out, *changes.set):
            if flag in options:
                raise OptionsError(f"{_OPTION} {path}: {flag} is an option of this launcher; give it there")
            if flag in SPOKEN_FOR:
                raise OptionsError(f"{_OPTION} {path}: {flag} follows from {SPOKEN_FOR[flag]}; leave it out here")
            if flag in leave_out or flag in settings or (flag in changes.leave_out and flag in changes.set):
                raise OptionsError(f"{_OPTION} {path}: {flag} is named twice; keep one")
        leave_out |= changes.leave_out
        settings |= changes.set
    return ArgumentChanges(leave_out, settings)


def _read(path: str) -> ArgumentChanges:
    content = read_option_file(_OPTION, path)
    if unknown := sorted(set(content) - {_LEAVE_OUT, _SET}):
        raise OptionsError(
            f"{_OPTION} {path}: {', '.join(map(shown_name, unknown))} is neither {_LEAVE_OUT} nor {_SET}"
        )
    return ArgumentChanges(
        {flag: _reason(path, flag, why) for flag, why in _object(path, content, _LEAVE_OUT).items()},
        {flag: _setting(path, flag, what) for flag, what in _object(path, content, _SET).items()},
    )


def _object(path: str, content: Mapping[str, Any], part_name: str) -> dict[str, object]:
    part: object = content.get(part_name, {})
    if not isinstance(part, dict):
        raise OptionsError(f"{_OPTION} {path}: {part_name} must be an object of flags")
    flags = cast(dict[str, object], part)
    for flag in flags:
        if not _FLAG.fullmatch(flag):
            raise OptionsError(f"{_OPTION} {path}: {shown_name(flag)!r} is no flag; write --name, its values apart")
    return flags


def _reason(path: str, flag: str, why: object) -> str:
    if not isinstance(why, str) or not why.strip():
        raise OptionsError(f"{_OPTION} {path}: say why {flag:.60} differs, as a text")
    validate_no_credentials(f"{_OPTION} {path}", why)
    return why


def _setting(path: str, flag: str, what: object) -> Setting:
    content = cast(dict[str, object], what) if isinstance(what, dict) else {}
    values = content.get("values")
    if set(content) != {"values", "reason"} or not isinstance(values, list):
        raise OptionsError(f'{_OPTION} {path}: {flag:.60} needs {{"values": [...], "reason": "..."}} and no more')
    texts = cast(list[object], values)
    if not all(is_process_text(text) and not str(text).startswith("--") for text in texts):
        raise OptionsError(
            f"{_OPTION} {path}: the values of {flag:.60} must be strings that do not begin with -- and have no zero "
            "byte"
        )
    validate_no_credentials(_OPTION, tuple(texts))
    validate_no_secret(f"{_OPTION} {path}", (flag, *cast(list[str], texts)))
    return Setting(tuple(cast(list[str], texts)), _reason(path, flag, content["reason"]))


def _shown(flag: str, values: Sequence[str]) -> str:
    return " ".join((flag, *values))

"""Command line of a launcher: every option with its help, and only those given in the answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence, Set
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypedDict, Union, cast, get_args, get_origin, get_type_hints

import tyro

from launcher.engines import EngineRules
from launcher.errors import OptionsError
from launcher.secrets import is_secret_name

ALIASES: Mapping[str, tuple[str, ...]] = {"session_server_external_host": ("--router-external-host",)}
METAVARS: Mapping[str, str] = {
    "argument_changes": "FILE ...",
    "extra_env_vars": "NAME=VALUE ...",
    "families": "NAME,...",
    "target_modules": "NAME ...",
}

# Plain switches: off everywhere, so a --no-... twin would only lengthen the help (and read --no-no-wait).
SWITCHES = frozenset(
    {
        *("dry_run", "preflight_only", "skip_preflight", "no_wait", "resume", "skip_prepare", "full_finetune"),
        *("rollout_fp8", "experts_shared_outer_loras"),
    }
)


def flag(option: str) -> str:
    """`save_dir` -> `--save-dir`."""
    return "--" + option.replace("_", "-")


def own_flags(options: type) -> frozenset[str]:
    """Every option of a launcher as it is spelled on the command line, other spellings included."""
    flags = {flag(name) for _, group in groups_of(options) for name, _, _ in fields_of(group)}
    return frozenset(flags.union(*ALIASES.values()))


def without_none(hint: Any) -> Any:
    """`int | None` -> `int`; whether an option may be absent is not something to type on a command line."""
    if get_origin(hint) in (Union, UnionType):
        (only,) = (part for part in get_args(hint) if part is not NoneType)
        return only
    return hint


def groups_of(options: type) -> Iterator[tuple[str, type]]:
    """Field name and dataclass of every option group."""
    hints = get_type_hints(options)
    for field in dataclasses.fields(options):
        yield field.name, cast(type, without_none(hints[field.name]))


def fields_of(group: type) -> Iterator[tuple[str, Any, str]]:
    """Name, type without None, and help of every option of a group."""
    for name, hint in get_type_hints(group, include_extras=True).items():
        base, text = get_args(hint)
        yield name, without_none(base), str(text)


def parse(
    program: str,
    description: str,
    options: type,
    engines: Sequence[EngineRules],
    argv: Sequence[str],
    lacks: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Values by option name, of the options given. `lacks`: options of other launchers, and why this one has not.

    Exits with 0 after --help and with 2, naming near misses, on anything that is not an option of this launcher.
    """
    known = own_flags(options)
    _refuse_keys(argv, known)
    _refuse_two_spellings(argv)
    for option, reason in (lacks or {}).items():
        if any(_name(item) == flag(option) for item in argv):
            raise OptionsError(f"{flag(option)} is not an option of {program}: {reason}")
    spec: dict[str, Any] = {}
    off: dict[str, dict[str, bool]] = {}
    for group_name, group in groups_of(options):
        keys: dict[str, Any] = {}
        for name, hint, text in fields_of(group):
            marker = tyro.conf.arg(
                help=text,
                aliases=ALIASES.get(name, ()),
                metavar=METAVARS.get(name) if get_origin(hint) is not Literal else None,
                help_behavior_hint=_defaults_hint(name, engines),
            )
            if name in SWITCHES:
                keys[name] = Annotated[hint, marker, tyro.conf.FlagCreatePairsOff]
                off.setdefault(group_name, {})[name] = False
            else:
                keys[name] = Annotated[hint, marker]
        title = group_name.replace("_", " ")
        spec[title] = Annotated[TypedDict(group.__name__, keys, total=False), tyro.conf.arg(help=group.__doc__)]  # pyright: ignore[reportArgumentType, reportUnknownArgumentType]
        off.setdefault(title, off.pop(group_name, {}))
    parsed: dict[str, dict[str, Any]] = tyro.cli(
        cast(type[dict[str, dict[str, Any]]], TypedDict("Options", spec)),  # pyright: ignore[reportArgumentType]
        prog=program,
        description=description,
        default=cast(dict[str, dict[str, Any]], off),
        args=[_only_name_of_unknown(item, known) for item in argv],
        config=(tyro.conf.OmitArgPrefixes,),
    )
    merged = {name: value for group in parsed.values() for name, value in group.items()}
    return {name: value for name, value in merged.items() if not (name in SWITCHES and value is False)}


def _refuse_keys(argv: Sequence[str], known: Set[str]) -> None:
    # Before tyro sees it: its error text would repeat the key.
    for item in argv:
        name = _name(item)
        if not name.startswith("--") or name in known:
            continue
        if name.startswith(("--wandb-key", "--wandb-api-key")):
            raise OptionsError(
                f"{name} is refused, a key on the command line is visible to everyone on the machine; "
                "set WANDB_API_KEY in the environment of the workers or run `wandb login` there (netrc)"
            )
        if is_secret_name(name.removeprefix("--").replace("-", "_")):
            raise OptionsError(
                f"{name} is no option, and a secret on the command line is visible to everyone on the machine; put it "
                "in a file that the workers can read and pass its path with --extra-env-vars NAME_FILE=path"
            )


def _refuse_two_spellings(argv: Sequence[str]) -> None:
    names = {_name(item) for item in argv}
    for option, aliases in ALIASES.items():
        given = sorted(names & {flag(option), *aliases})
        if len(given) > 1:
            raise OptionsError(f"{' and '.join(given)} are one option; give one of the two")


def _only_name_of_unknown(item: str, known: Set[str]) -> str:
    """Near misses are looked for by name, which a long value would drown; and nobody needs the value repeated."""
    name = _name(item)
    positive = name.replace("--no-", "--", 1)
    if item.startswith("--") and "=" in item and name not in known and positive not in known:
        return item.split("=", 1)[0]
    return item


def _name(item: str) -> str:
    return item.split("=", 1)[0].replace("_", "-")


def _defaults_hint(option: str, engines: Sequence[EngineRules]) -> str:
    if option in SWITCHES:
        return ""
    shown = [(engine.name, default_in_words(option, engine)) for engine in engines if knows(option, engine)]
    values = {value for _, value in shown}
    if len(values) == 1 and len(shown) == len(engines):
        return "" if values == {"none"} else f"({values.pop()})"
    return "(" + "; ".join(f"{name}: {value}" for name, value in shown) + ")"


def knows(option: str, engine: EngineRules) -> bool:
    return option in engine.defaults or option in engine.refused or option in engine.derived


def default_in_words(option: str, engine: EngineRules) -> str:
    if option in engine.refused:
        return "refused"
    if option in engine.shown:
        return engine.shown[option]
    return _shown(engine.derived[option](engine.defaults) if option in engine.derived else engine.defaults[option])


def _shown(value: object) -> str:
    if value is None or value == ():
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ",".join(str(part) for part in cast(tuple[object, ...], value))
    return str(value)

"""The part of the Dockerfile language that means something without an image.

FROM is read and set aside: the sandbox shows this machine's /usr. WORKDIR, ENV, ARG, COPY, ADD of local files and RUN
are carried out; LABEL, MAINTAINER, EXPOSE and CMD change nothing in a task's files and are accepted. Everything else is
an error that names the line: a task built only in part would be graded wrongly.
"""

# pyright: reportMissingTypeStubs=false
# Harbor ships no type stubs.

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harbor.environments.base import SandboxBuildFailedError

_NO_EFFECT = {"FROM", "LABEL", "MAINTAINER", "EXPOSE", "CMD"}
_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
_VARIABLE = re.compile(r"\\(?P<escaped>.)|\$\{(?P<braced>[^}]*)\}|\$(?P<plain>[A-Za-z_][A-Za-z0-9_]*)")
_DIRECTIVE = re.compile(r"#\s*escape\s*=\s*(\S+)", re.IGNORECASE)


@dataclass(frozen=True)
class Workdir:
    line: int
    path: str


@dataclass(frozen=True)
class Env:
    """pairs: (name, value before variables are filled in); `build_only`: from ARG, not seen by later commands."""

    line: int
    pairs: tuple[tuple[str, str], ...]
    build_only: bool = False


@dataclass(frozen=True)
class Copy:
    """sources as written, relative to the environment folder; `mode` from --chmod."""

    line: int
    sources: tuple[str, ...]
    target: str
    mode: int | None


@dataclass(frozen=True)
class Run:
    """command: one bash command line."""

    line: int
    command: str


Step = Workdir | Env | Copy | Run


def parse(text: str, name: str = "Dockerfile") -> list[Step]:
    """The steps of a Dockerfile, in order.

    Raises:
        SandboxBuildFailedError: something that this sandbox does not carry out; the text names file, line and reason.
    """
    steps: list[Step] = []
    stages = 0
    for number, line in _logical_lines(text, name):
        word, _, rest = line.partition(" ")
        word, rest = word.upper(), rest.strip()
        if word == "FROM":
            stages += 1
            if stages > 1:
                raise refused(name, number, "a second FROM: builds in stages are not supported")
        elif stages == 0 and word != "ARG":
            raise refused(name, number, f"{word} before FROM")
        if word in _NO_EFFECT:
            continue
        if not rest:
            raise refused(name, number, f"{word} without an argument")
        steps += _step(word, rest, number, name)
    if stages == 0:
        raise refused(name, 1, "there is no FROM")
    return steps


def _step(word: str, rest: str, line: int, name: str) -> list[Step]:
    if word == "WORKDIR":
        return [Workdir(line, rest)]
    if word == "ENV":
        return [Env(line, _pairs(rest, line, name))]
    if word == "ARG":
        given = [part.partition("=") for part in _split(rest, line, name) if "=" in part]
        return [Env(line, tuple((key, value) for key, _, value in given), build_only=True)]
    if word in ("COPY", "ADD"):
        return [_copy(word, rest, line, name)]
    if word == "RUN":
        return [_run(rest, line, name)]
    if word == "USER":
        if rest in ("root", "0", "root:root", "0:0"):
            return []
        raise refused(name, line, f"USER {rest}: the sandbox has only the user root (without root's rights outside)")
    if word == "SHELL":
        if _json_list(rest) in (["/bin/bash", "-c"], ["/bin/sh", "-c"], ["bash", "-c"], ["sh", "-c"]):
            return []
        raise refused(name, line, f"SHELL {rest}: commands are run by bash -c")
    raise refused(name, line, f"{word} is not supported by the local sandbox")


def refused(name: str, line: int, reason: str) -> SandboxBuildFailedError:
    return SandboxBuildFailedError(
        f"{name}, line {line}: {reason}; change the task, or run it with another environment (docker, daytona, ...)"
    )


def _logical_lines(text: str, name: str) -> list[tuple[int, str]]:
    """Lines with continuations joined and comments removed, each with the number of its first line."""
    lines: list[tuple[int, str]] = []
    pending, first = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if line.startswith("#"):
            directive = _DIRECTIVE.match(line)
            if directive and not lines and directive.group(1) != "\\":
                raise refused(name, number, f"escape character {directive.group(1)!r}")
            continue
        if not line:
            continue
        first = first if pending else number
        if line.endswith("\\"):
            pending += line[:-1].rstrip() + " "
            continue
        whole = " ".join((pending + line).split("\t"))
        lines.append((first, whole))
        pending = ""
    if pending.strip():
        lines.append((first, pending.strip()))
    return lines


def _split(text: str, line: int, name: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise refused(name, line, f"cannot be read: {error}") from None


def _pairs(rest: str, line: int, name: str) -> tuple[tuple[str, str], ...]:
    first = rest.split(None, 1)
    if "=" not in first[0]:
        if len(first) == 1:
            raise refused(name, line, f"ENV {rest}: no value")
        return ((first[0], first[1]),)
    pairs: list[tuple[str, str]] = []
    for part in _split(rest, line, name):
        key, equals, value = part.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
            raise refused(name, line, f"ENV {part}: not of the form NAME=value")
        pairs.append((key, value))
    return tuple(pairs)


def _json_list(text: str) -> list[str] | None:
    if not text.startswith("["):
        return None
    try:
        parsed: Any = json.loads(text)
    except ValueError:
        return None
    if isinstance(parsed, list) and all(isinstance(item, str) for item in parsed):  # pyright: ignore[reportUnknownVariableType]
        return parsed  # pyright: ignore[reportUnknownVariableType]
    return None


def _flags(rest: str) -> tuple[list[str], str]:
    flags: list[str] = []
    while rest.startswith("--"):
        flag, _, rest = rest.partition(" ")
        flags.append(flag)
        rest = rest.strip()
    return flags, rest


def _copy(word: str, rest: str, line: int, name: str) -> Copy:
    mode: int | None = None
    flags, rest = _flags(rest)
    for flag in flags:
        key, _, value = flag.partition("=")
        if key == "--chmod" and re.fullmatch(r"[0-7]{3,4}", value):
            mode = int(value, 8)
        elif key == "--chown" and value in ("root", "root:root", "0", "0:0"):
            pass
        else:
            raise refused(name, line, f"{word} {flag} is not supported")
    if "<<" in rest:
        raise refused(name, line, f"{word} with a here-document is not supported")
    paths = _json_list(rest) or _split(rest, line, name)
    if len(paths) < 2:
        raise refused(name, line, f"{word} needs a source and a target")
    *sources, target = paths
    for source in sources:
        if "://" in source or source.startswith("git@"):
            raise refused(name, line, f"{word} {source}: the sandbox has no network")
        if word == "ADD" and source.lower().endswith(_ARCHIVES):
            raise refused(name, line, f"ADD {source}: archives are not unpacked")
    return Copy(line, tuple(sources), target, mode)


def _run(rest: str, line: int, name: str) -> Run:
    flags, rest = _flags(rest)
    if flags:
        raise refused(name, line, f"RUN {flags[0]} is not supported")
    exec_form = _json_list(rest)
    if exec_form is not None:
        return Run(line, f"exec {shlex.join(exec_form)}")
    if re.search(r"(?<!<)<<-?\s*[\"']?[A-Za-z_]", rest):
        raise refused(name, line, "RUN with a here-document is not supported")
    return Run(line, rest)


def fill_in(text: str, variables: Mapping[str, str], line: int, name: str = "Dockerfile") -> str:
    """Put in the variables of ENV and ARG; an unknown one is empty, as in Docker."""

    def value(match: re.Match[str]) -> str:
        if match.group("escaped") is not None:
            return match.group("escaped") if match.group("escaped") in "$\\" else match.group(0)
        key = match.group("braced") if match.group("braced") is not None else match.group("plain")
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
            raise refused(name, line, f"${{{key}}}: only plain variables are filled in")
        return variables.get(key, "")

    return _VARIABLE.sub(value, text)


def copy_sources(environment_dir: Path, pattern: str, line: int, name: str = "Dockerfile") -> list[Path]:
    """The files and folders of the task's environment folder that one COPY source means.

    Raises:
        SandboxBuildFailedError: none is there, or one lies outside that folder.
    """
    root = environment_dir.resolve()
    relative = pattern.lstrip("/")
    if relative in ("", ".", "./"):
        return [root]
    found = sorted(root.glob(relative)) if re.search(r"[*?\[]", relative) else [root / relative]
    found = [path for path in found if path.exists()]
    if not found:
        raise refused(name, line, f"{pattern} is not in {environment_dir}")
    for path in found:
        if not path.resolve().is_relative_to(root):
            raise refused(name, line, f"{pattern} lies outside {environment_dir}")
    return found

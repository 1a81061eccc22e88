"""Secrets: none in what a plan carries, and key files that hold one for their owner only."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from disk.regular_file import open_regular
from launcher.preflight import Finding, failure, first_three, ok, warning
from launcher.secrets import carries_secret, has_credentials, is_secret_name

_NAME = "secrets"


def check_no_secrets(arguments: Sequence[str], environment: Mapping[str, str]) -> Finding:
    """Looks at the names of what a job description shows to everybody; never repeats a value."""
    found = [name for name in environment if is_secret_name(name)]
    found += [
        f"{name} (a URL with a user or password)" for name, value in environment.items() if has_credentials(value)
    ]
    for argument in arguments:
        if has_credentials(argument):
            found.append("an argument that is a URL with a user or password")
        elif carries_secret(argument):
            found.append(argument.partition("=")[0])
    if found:
        return failure(
            _NAME,
            f"the job's description would show {first_three(found)}",
            "put it in a file that the workers can read and pass NAME_FILE=path",
        )
    return ok(_NAME, f"none in {len(arguments)} arguments and {len(environment)} variables")


def check_key_file(name: str, path: Path) -> Finding:
    """`name` is the variable that says where the file is."""
    check = f"key file {name}"
    try:
        with open_regular(path) as file:
            mode = os.fstat(file.fileno()).st_mode
            empty = not file.read(4096).strip()
    except OSError as error:
        return failure(check, f"{path} cannot be read ({error.strerror})", f"correct {name}, or make the file")
    if empty:
        return failure(check, f"{path} is empty", f"write the key into it, or correct {name}")
    if mode & (stat.S_IRGRP | stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH):
        return warning(check, f"{path} can be read by others (mode {stat.S_IMODE(mode):o})", f"run `chmod 600 {path}`")
    return ok(check, f"{path} is there, for its owner only")


def key_files(environment: Mapping[str, str]) -> dict[str, Path]:
    """Of every variable that names the file of a secret."""
    return {
        name: Path(os.path.expanduser(value))
        for name, value in environment.items()
        if name.endswith("_FILE") and is_secret_name(name.removesuffix("_FILE")) and value
    }

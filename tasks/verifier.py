"""What a finished task must look like, and the bash script that checks it.

A verifier is a list of levels, best first; the reward is that of the first level whose conditions all hold, else 0.
The script holds every expected byte itself. It reaches the sandbox only after the agent has ended, and it believes
nothing that the agent could have left there: links are refused, contents are compared byte for byte.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Holds:
    """A regular file (no link) whose bytes equal one of `contents`. No content may hold a NUL byte."""

    path: str
    contents: tuple[str, ...]


@dataclass(frozen=True)
class Extends:
    """A regular file (no link) that begins with `content` and goes on after it."""

    path: str
    content: str


@dataclass(frozen=True)
class IsFile:
    """A regular file (no link), whatever is in it."""

    path: str


@dataclass(frozen=True)
class IsFolder:
    """A directory, not a link to one."""

    path: str


@dataclass(frozen=True)
class Missing:
    """Nothing has this name, not even a dangling link."""

    path: str


@dataclass(frozen=True)
class Separate:
    """Two files that share no inode: a hard link is no copy."""

    left: str
    right: str


@dataclass(frozen=True)
class OwnerMayExecute:
    """The owner's execute bit is set."""

    path: str


Condition = Holds | Extends | IsFile | IsFolder | Missing | Separate | OwnerMayExecute


@dataclass(frozen=True)
class Level:
    """A reward in (0, 1] and all that must hold for it."""

    reward: float
    conditions: tuple[Condition, ...]


@dataclass(frozen=True)
class FileState:
    """Full reward where all of `done` holds; with partial credit the first of `partial`, best first, that holds."""

    done: tuple[Condition, ...]
    partial: tuple[Level, ...] = ()

    def levels(self, partial_credit: bool) -> tuple[Level, ...]:
        """Best first; without partial credit the full reward alone."""
        return (Level(1.0, self.done), *(self.partial if partial_credit else ()))

    def tests(self, partial_credit: bool) -> dict[str, str]:
        """The files of tests/."""
        return {"test.sh": script(self.levels(partial_credit))}


# `read -d '' -n N` stops at a NUL byte or after N bytes with status 0, and at the end of the file with status 1. So
# status 1 and equal text mean equal bytes, without a child process and without reading a huge file.
_HEAD = r"""#!/bin/bash
LC_ALL=C

plain() { [[ -f $1 && -r $1 && ! -L $1 ]]; }

holds() {
    local path=$1 want got
    shift
    plain "$path" || return 1
    for want; do
        got=
        if ! IFS= read -r -d '' -n $((${#want} + 1)) got <"$path" && [[ $got == "$want" ]]; then return 0; fi
    done
    return 1
}

extends() {
    local got=
    plain "$1" && IFS= read -r -d '' -n $((${#2} + 1)) got <"$1" &&
        ((${#got} == ${#2} + 1)) && [[ ${got:0:${#2}} == "$2" ]]
}

folder() { [[ -d $1 && ! -L $1 ]]; }
missing() { [[ ! -e $1 && ! -L $1 ]]; }
separate() { [[ ! $1 -ef $2 ]]; }
owner_may_execute() { plain "$1" && ((8#$(/usr/bin/stat -c %a -- "$1") & 0100)); }

reward=0
if cd /app; then
"""

_TAIL = r"""fi
printf '%s\n' "$reward" >/logs/verifier/reward.txt
"""


def quote(text: str) -> str:
    """`text` as one bash word in $'...' form, on one line whatever it holds.

    Raises ValueError for a NUL byte, which no bash word can carry.
    """
    if "\0" in text:
        raise ValueError("bash cannot hold a NUL byte in a word")
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\t", "\\t")
    return f"$'{escaped}'"


def _call(condition: Condition) -> str:
    match condition:
        case Holds(path, contents):
            return " ".join(["holds", quote(path), *(quote(content) for content in contents)])
        case Extends(path, content):
            return f"extends {quote(path)} {quote(content)}"
        case IsFile(path):
            return f"plain {quote(path)}"
        case IsFolder(path):
            return f"folder {quote(path)}"
        case Missing(path):
            return f"missing {quote(path)}"
        case Separate(left, right):
            return f"separate {quote(left)} {quote(right)}"
        case OwnerMayExecute(path):
            return f"owner_may_execute {quote(path)}"


def script(levels: tuple[Level, ...]) -> str:
    """The text of tests/test.sh for levels given best first. Paths are relative to /app.

    Raises ValueError when the levels rise or do not begin with 1.
    """
    rewards = [level.reward for level in levels]
    if not rewards or rewards[0] != 1 or sorted(rewards, reverse=True) != rewards or rewards[-1] <= 0:
        raise ValueError(f"levels must go down from 1 and stay above 0, got {rewards}")
    branches: list[str] = []
    for level in levels:
        keyword = "elif" if branches else "if"
        test = " &&\n        ".join(_call(condition) for condition in level.conditions)
        branches.append(f"    {keyword} {test}; then\n        reward={level.reward:g}\n")
    return _HEAD + "".join(branches) + "    fi\n" + _TAIL

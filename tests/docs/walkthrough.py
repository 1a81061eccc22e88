"""A page of documentation as its reader uses it: the commands of its fenced blocks, as printed, in one shell.

Blocks of the language `sh` are run one after the other. One that is followed by a block `output` must print that: `...`
stands for any text, alone on a line for any lines. `sh long` is a block that takes minutes: `walk` leaves it out unless
told otherwise, together with what it should print. Other blocks are for reading.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^```(.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NOT_PART = ("runs", ".git", ".cache")  # of what a reader has before the first command


@dataclass(frozen=True)
class Block:
    """One fenced block; `kind` is the language with the words behind it."""

    kind: str
    text: str
    line: int


def fenced_blocks(markdown: str) -> list[Block]:
    """In their order; `line` is that of the opening fence, from 1."""
    return [
        Block(match[1].strip(), match[2], markdown.count("\n", 0, match.start()) + 1)
        for match in _FENCE.finditer(markdown)
    ]


def matches(expected: str, printed: str) -> bool:
    """Whether `printed` is `expected`, with `...` for any text and, alone on a line, for any lines."""
    parts: list[str] = []
    for line in expected.strip().splitlines():
        parts.append(
            r"(?:.*\n)*?" if line.strip() == "..." else re.escape(line.rstrip()).replace(r"\.\.\.", ".*") + "\n"
        )
    text = "".join(f"{line.rstrip()}\n" for line in printed.strip().splitlines())
    return re.fullmatch("".join(parts), text) is not None


def make_ground(folder: Path) -> Path:
    """A folder that looks like the repository and keeps what the commands write."""
    folder.mkdir()
    for path in ROOT.iterdir():
        if path.name not in _NOT_PART:
            (folder / path.name).symlink_to(path)
    environment = folder / ".venv"
    environment.unlink(missing_ok=True)
    environment.symlink_to(sys.prefix)
    return folder


def walk(
    page: Path, ground: Path, *, long: bool = False, timeout: float = 240, replaced: Mapping[str, str] | None = None
) -> None:
    """Run the page's commands in `ground` and compare what they print. `replaced`: texts that a test cannot keep.

    Raises AssertionError that names page and line.
    """
    blocks = [block for block in fenced_blocks(page.read_text()) if block.kind in ("sh", "sh long", "output")]
    scripts = [block for block in blocks if block.kind == "sh" or (long and block.kind == "sh long")]
    assert scripts, f"{page.name} has no commands"
    printed = _run(page, scripts, ground, timeout, replaced or {})
    for block, following in pairwise(blocks):
        if following.kind == "output" and block in scripts:
            said = printed[block.line]
            assert matches(following.text, said), (
                f"{page.name}, line {following.line}: expected\n{following.text}\nbut line {block.line} printed\n{said}"
            )


def _run(page: Path, scripts: list[Block], ground: Path, timeout: float, replaced: Mapping[str, str]) -> dict[int, str]:
    """What each block printed, by its line. One shell reads them all: a later one sees what an earlier one set."""
    folder = ground / ".walk"
    folder.mkdir()
    lines = ["set -e"]
    for block in scripts:
        text = block.text
        for old, new in replaced.items():
            text = text.replace(old, new)
        (folder / f"{block.line}.sh").write_text(text)
        lines.append(f"exec >{shlex.quote(str(folder / f'{block.line}.out'))} 2>&1; . {folder / f'{block.line}.sh'}")
    hidden = ("PYTHONDONTWRITEBYTECODE", "AGENT_SERVER_URL", "HARBOR_TASKS_DIR")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    process = subprocess.Popen(
        ["bash", "-c", "\n".join(lines)], cwd=ground, env=environment, stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        code = process.wait(timeout)
    except subprocess.TimeoutExpired:
        code = None
    finally:
        # What the page left in the background is in the shell's own process group.
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
    printed = {
        block.line: (folder / f"{block.line}.out").read_text()
        for block in scripts
        if (folder / f"{block.line}.out").exists()
    }
    last = max(printed, default=0)
    ended = "did not end" if code is None else f"ended with code {code}"
    assert code == 0, f"{page.name}, line {last}: {ended}\n{printed.get(last, '')}"
    return printed

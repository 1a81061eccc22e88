"""Every flag of the launchers as a page, from the option dataclasses.

python -m launcher.flag_table > docs/flags.md
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from launcher.cli import ALIASES, default_in_words, fields_of, flag, groups_of, knows
from launcher.engines import EngineRules
from launcher.main import Launcher
from launcher.scripts import SCRIPTS, load_script

_HEAD = """# Flags

Made from the option dataclasses by `python -m launcher.flag_table > docs/flags.md`. A cell is the default; the variable
in brackets stands in for a flag that is not given. `-`: the launcher has no such option; refused: not with this engine.
"""


def page(launchers: Sequence[Launcher[Any]]) -> str:
    """A table for each engine, of all its options by group."""
    parts = [_HEAD]
    for engine in dict.fromkeys(name for launcher in launchers for name in launcher.engines):
        having = [launcher for launcher in launchers if engine in launcher.engines]
        parts += [f"## `--engine {engine}`\n", *_table(engine, having), ""]
    return "\n".join(parts).rstrip() + "\n"


def _table(engine: str, launchers: Sequence[Launcher[Any]]) -> list[str]:
    rows = [f"| flag | {' | '.join(f'`{launcher.program}`' for launcher in launchers)} | what |"]
    rows.append("|---" * (len(launchers) + 2) + "|")
    for group, options in _groups(launchers).items():
        shown = [
            (name, text, [_cell(name, launcher, engine) for launcher in launchers]) for name, text in options.items()
        ]
        known = [row for row in shown if any(cell not in ("-", "refused") for cell in row[2])]
        if known:
            rows.append(f"| **{group.replace('_', ' ')}** |" + " |" * (len(launchers) + 1))
        for name, text, cells in known:
            names = ", ".join(f"`{spelling}`" for spelling in (flag(name), *ALIASES.get(name, ())))
            rows.append(f"| {names} | {' | '.join(cells)} | {_escaped(text)} |")
    return rows


def _groups(launchers: Sequence[Launcher[Any]]) -> Mapping[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for launcher in launchers:
        for group, options in groups_of(launcher.options):
            found.setdefault(group, {}).update({name: text for name, _, text in fields_of(options)})
    return found


def _cell(name: str, launcher: Launcher[Any], engine: str) -> str:
    rules: EngineRules = launcher.engines[engine]
    if name in launcher.lacks or not knows(name, rules):
        return "-"
    text = _escaped(default_in_words(name, rules))
    variables = rules.environment.get(name, ())
    return f"{text} (`{'`, `'.join(variables)}`)" if variables else text


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "\\<")


if __name__ == "__main__":
    sys.stdout.write(page([load_script(script).LAUNCHER for script in SCRIPTS]))

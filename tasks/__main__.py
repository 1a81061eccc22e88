"""Write Harbor task folders: `python -m tasks --out tasks-train --split train --count 20`."""

import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from tasks.families import EASY, FAMILIES, HARD, UnknownFamily
from tasks.folder import TaskFolderError, write_tasks
from tasks.words import Split


@dataclass(frozen=True)
class Options:
    """Write small terminal tasks as Harbor task folders."""

    out: Path
    """Folder that gets one task folder for each instance."""
    families: tuple[str, ...] = ("easy",)
    """Names of families, or `easy` (six), `hard` (ten), `all`; apart by spaces or commas."""
    split: Split = "train"
    """`train` and `test` share no names and no words."""
    count: int = 20
    """Tasks per family."""
    seed: int = 0
    """Chooses the instances."""
    partial_credit: bool = False
    """Let the harder families' verifiers pay 0.2 to 0.5 for partly right results."""


_GROUPS = {"easy": EASY, "hard": HARD, "all": FAMILIES}


def main(argv: list[str] | None = None) -> int:
    options = tyro.cli(Options, args=argv, prog="python -m tasks")
    named = [name for given in options.families for name in given.split(",") if name]
    families = dict.fromkeys(name for given in named for name in _GROUPS.get(given, (given,)))
    try:
        ids = write_tasks(
            options.out, families, options.split, options.count, options.seed, partial_credit=options.partial_credit
        )
    except (UnknownFamily, TaskFolderError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{len(ids)} tasks of {len(families)} families in {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

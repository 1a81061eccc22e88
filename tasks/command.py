"""The command that writes the tasks of a collection."""

import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from tasks.collection import Collection
from tasks.folder import TaskFolderError, write_tasks
from tasks.instance import UnknownFamily
from tasks.words import Split


@dataclass(frozen=True)
class Options:
    """What to write."""

    out: str
    """Folder that gets one task folder for each instance."""
    families: tuple[str, ...] = ()
    """Names of families or groups, apart by spaces or commas; the first group where none is named."""
    split: Split = "train"
    """`train` and `test` share no names and no values."""
    count: int = 20
    """Tasks per family."""
    seed: int = 0
    """Chooses the instances."""
    partial_credit: bool = False
    """Let verifiers pay less than 1 for a part of the work, where a family has such parts."""


def write_command(collection: Collection, program: str, argv: list[str] | None = None) -> int:
    """Parse, write, say what was written. Exit codes: 0 written, 2 the options or the disk do not allow it."""
    groups = "; ".join(f"{name}: {', '.join(families)}" for name, families in collection.groups.items())
    description = f"Write tasks of {collection.name} as Harbor task folders.\n\nGroups of families: {groups}."
    options = tyro.cli(Options, args=argv, prog=program, description=description)
    families = collection.families(options.families)
    try:
        if not options.out:
            raise TaskFolderError("--out is empty; name the folder for the tasks (. is the one you are in)")
        ids = write_tasks(
            Path(options.out),
            families,
            options.split,
            options.count,
            options.seed,
            partial_credit=options.partial_credit,
            collection=collection,
        )
    except (UnknownFamily, TaskFolderError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{len(ids)} tasks of {len(families)} families in {options.out}")
    return 0

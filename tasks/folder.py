"""Instances as Harbor task folders (task.toml, instruction.md, environment/, tests/, solution/)."""

import os
import random
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tasks.collection import Collection
from tasks.families import TERMINAL_BASICS
from tasks.instance import Instance
from tasks.words import Split

# A family with few sentences (mkdir has one for each directory name) runs out of new ones: after this many draws in a
# row without a new instance, instances repeat under other ids.
_DRAWS_FOR_A_NEW_ONE = 50


class TaskFolderError(OSError):
    """A task folder cannot be written where it was asked for."""


@dataclass(frozen=True)
class _File:
    content: str
    mode: int = 0o644


def _task_toml(instance: Instance, collection: Collection, partial_credit: bool) -> str:
    return f"""schema_version = "1.4"

[task]
name = "{collection.name}/{instance.instance_id}"
description = "{collection.about}: {instance.family}"

[metadata]
family = "{instance.family}"
split = "{instance.split}"
seed = {instance.seed}
partial_credit = {str(partial_credit).lower()}

[agent]
timeout_sec = 60.0

[verifier]
timeout_sec = 30.0

[environment]
build_timeout_sec = 60.0
cpus = 1
memory_mb = 512
"""


def _dockerfile(instance: Instance, image: str) -> str:
    # WORKDIR makes a directory in every builder, while an empty one gets lost in most copies of a build context.
    lines = [f"FROM {image}", *(f"WORKDIR /app/{folder}" for folder in instance.folders), "WORKDIR /app"]
    if instance.files:
        lines.append("COPY files/ /app/")
    return "\n".join(lines) + "\n"


def _contents(instance: Instance, collection: Collection, partial_credit: bool) -> dict[str, _File]:
    tests = instance.verifier.tests(partial_credit)
    files = {
        "task.toml": _File(_task_toml(instance, collection, partial_credit)),
        # The model was measured on the bare sentence: no newline at its end.
        "instruction.md": _File(instance.instruction),
        "environment/Dockerfile": _File(_dockerfile(instance, collection.image)),
        **{f"tests/{name}": _File(text, 0o755 if name == "test.sh" else 0o644) for name, text in tests.items()},
        "solution/solve.sh": _File(f"#!/bin/bash\ncd /app || exit 1\n{instance.solution}\n", 0o755),
    }
    return files | {f"environment/files/{path}": _File(text) for path, text in instance.files.items()}


def _is_written(folder: Path, files: dict[str, _File]) -> bool:
    """Whether the folder holds these files, byte for byte and with these modes, and no other."""
    if folder.is_symlink() or not folder.is_dir():
        return False
    present = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_symlink() or path.is_file()}
    if present.keys() != files.keys():
        return False
    return all(
        not present[name].is_symlink()
        and present[name].stat().st_mode & 0o777 == file.mode
        and present[name].read_bytes() == file.content.encode()
        for name, file in files.items()
    )


def _write_instance(root: Path, instance: Instance, collection: Collection, partial_credit: bool) -> str:
    files = _contents(instance, collection, partial_credit)
    target = root / instance.instance_id
    if _is_written(target, files):
        return instance.instance_id
    # No fsync: what a power cut may leave half written is found and written again by the comparison above.
    fresh = root / f".{instance.instance_id}.new-{os.getpid()}"
    stale = root / f".{instance.instance_id}.old-{os.getpid()}"
    try:
        for name, file in files.items():
            path = fresh / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.content.encode())
            path.chmod(file.mode)
        if target.is_symlink() or target.exists():
            target.rename(stale)
        fresh.rename(target)
    except OSError as error:
        raise TaskFolderError(f"cannot write the task folder {target}: {error}") from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        if stale.is_symlink() or stale.is_file():
            stale.unlink()
        shutil.rmtree(stale, ignore_errors=True)
    return instance.instance_id


def _prepare_root(root: Path) -> None:
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TaskFolderError(f"cannot make the folder for the tasks, {root}: {error}") from error


def write_task(
    root: Path,
    family: str,
    split: Split,
    seed: int,
    *,
    partial_credit: bool = False,
    collection: Collection = TERMINAL_BASICS,
) -> str:
    """Write one task folder `<root>/<family>-<split>-<seed>` and return its instance id.

    A folder that already has this content is left alone; another one of the same name is replaced by a rename.
    `partial_credit` puts the family's graded levels (see the collection's families) into the verifier.
    Raises UnknownFamily, or TaskFolderError where the disk refuses.
    """
    instance = collection.make(family, split, seed)
    _prepare_root(root)
    return _write_instance(root, instance, collection, partial_credit)


def _choose(collection: Collection, family: str, split: Split, count: int, seed: int) -> list[Instance]:
    rng = random.Random(f"{seed}/{family}/{split}")
    chosen: dict[int, Instance] = {}
    seen: set[tuple[str, str]] = set()
    repeats = 0
    while len(chosen) < count:
        instance = collection.make(family, split, rng.randrange(1_000_000))
        if instance.seed in chosen:
            continue
        look = (instance.instruction, repr(sorted(instance.files.items())))
        if look in seen and repeats < _DRAWS_FOR_A_NEW_ONE:
            repeats += 1
            continue
        repeats = 0 if look not in seen else repeats
        seen.add(look)
        chosen[instance.seed] = instance
    return list(chosen.values())


def choose_tasks(
    families: Iterable[str],
    split: Split,
    count_per_family: int,
    seed: int,
    *,
    collection: Collection = TERMINAL_BASICS,
) -> list[Instance]:
    """The instances that `write_tasks` writes, family by family; nothing is written. Raises as it does."""
    if not 1 <= count_per_family <= 100_000:
        raise ValueError(f"the number of tasks per family must be from 1 to 100000, got {count_per_family}")
    return [instance for family in families for instance in _choose(collection, family, split, count_per_family, seed)]


def write_tasks(
    root: Path,
    families: Iterable[str],
    split: Split,
    count_per_family: int,
    seed: int,
    *,
    partial_credit: bool = False,
    collection: Collection = TERMINAL_BASICS,
) -> list[str]:
    """Write `count_per_family` tasks of each family and return their instance ids, family by family.

    Instances differ from one another as long as the family has different ones (mkdir has one for each directory name);
    after that they repeat under new ids. The same arguments choose the same instances. Raises as `write_task`, and
    ValueError for a count that is not from 1 to 100,000.
    """
    chosen = choose_tasks(families, split, count_per_family, seed, collection=collection)
    _prepare_root(root)
    return [_write_instance(root, instance, collection, partial_credit) for instance in chosen]

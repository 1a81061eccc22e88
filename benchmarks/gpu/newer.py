"""Packs a newer Miles from its git folder, to lie before the packages of pack.py, whose SGLang and Megatron it runs on.

    python -m benchmarks.gpu.newer --git FOLDER --out FOLDER [--commit NAME]

The package on PyPI lacks the asynchronous rollout, its driver and more than one session server. `run.sh` edits what
this Miles asks of a newer SGLang.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tarfile
from pathlib import Path

PARTS = ("miles", "miles_plugins", "train.py", "train_async.py")
FOLDER = "newer"  # beside miles/ and harbor/ of pack.py
# Imported at the top of a module for a model that this run has not; an older SGLang has no such file.
STUBS = {"miles/sglang/srt/entrypoints/openai/encoding_dsv4.py": ""}


def archive(git: Path, commit: str, path: Path) -> str:
    """Writes an .tar.xz and returns the commit's full name. Raises CalledProcessError where git has no such commit."""
    found = subprocess.run(
        ["git", "-C", str(git), "rev-parse", "--verify", f"{commit}^{{commit}}"],
        check=True, stdout=subprocess.PIPE, text=True,
    ).stdout.strip()  # fmt: skip
    sources = subprocess.run(
        ["git", "-C", str(git), "archive", "--format=tar", f"--prefix={FOLDER}/", found, *PARTS],
        check=True, stdout=subprocess.PIPE,
    ).stdout  # fmt: skip
    with tarfile.open(fileobj=io.BytesIO(sources)) as source, tarfile.open(path, "w:xz") as packed:
        for member in source:
            packed.addfile(member, source.extractfile(member) if member.isfile() else None)
        for name, text in {**STUBS, f"{FOLDER}/COMMIT": f"{found}\n"}.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            packed.addfile(member, io.BytesIO(text.encode()))
    return found


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="newer", description=__doc__, allow_abbrev=False)
    parser.add_argument("--git", type=Path, required=True, help="git folder of Miles, bare or not")
    parser.add_argument("--out", type=Path, required=True, help="folder of the archive")
    parser.add_argument("--commit", default="HEAD", help="what to pack (HEAD)")
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    path: Path = options.out / f"{FOLDER}.tar.xz"
    commit = archive(options.git, options.commit, path)
    print(f"{path}: {path.stat().st_size / 2**20:.1f} MiB, {commit}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A Python process that has Miles on its path; ours has not, since Miles brings what the agent server must not see."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.miles_hooks.miles_parts")
# The wheel brings the pure-Python parts of sglang and Megatron along; the others are what importing those needs
# beyond our own environment.
REQUIREMENTS = ("miles-rl==0.0.2", "ipython==9.18.1", "pybase64==1.5.1", "pylatexenc==2.11", "traitlets==5.16.1")


def miles_environment() -> dict[str, str]:
    """What the environment of such a process has over ours."""
    folders = (install_miles(), REPOSITORY / "tests" / "stubs", REPOSITORY)
    return {
        "PYTHONPATH": os.pathsep.join(map(str, folders)),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }


def install_miles() -> Path:
    """The folder with miles-rl, installed on first use and kept in .cache/; fails clearly where it cannot be."""
    name = hashlib.sha256("\n".join(REQUIREMENTS).encode()).hexdigest()[:12]
    cache = REPOSITORY / ".cache" / "tests"
    cache.mkdir(parents=True, exist_ok=True)
    folder, partial = cache / f"miles-{name}", cache / f"miles-{name}.partial"
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            return folder
        shutil.rmtree(partial, ignore_errors=True)
        venv.create(partial / "pip", with_pip=True)
        command = [partial / "pip" / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
        done = subprocess.run(
            [*command, "--target", partial / "site", *REQUIREMENTS], capture_output=True, text=True, timeout=240
        )
        if done.returncode != 0:
            pytest.fail(
                f"these tests need {' '.join(REQUIREMENTS)} from a package index:\n{done.stderr}", pytrace=False
            )
        (partial / "site").rename(folder)
        shutil.rmtree(partial)
    return folder

"""The Miles hooks: importable without Miles, and right with the real classes of miles-rl."""

import ast
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import venv
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import generate
from trajectory.outcome import Outcome, discarded

REPOSITORY = Path(__file__).resolve().parent.parent
CHECKS = sorted((REPOSITORY / "tests" / "miles_hooks").glob("check_*.py"))
# The wheel brings the pure-Python parts of sglang and Megatron along; the others are what importing those needs
# beyond our own environment.
REQUIREMENTS = ("miles-rl==0.0.2", "ipython==9.18.1", "pybase64==1.5.1", "pylatexenc==2.11", "traitlets==5.16.1")


def test_importing_the_hooks_needs_no_miles() -> None:
    script = "import sys, generate; assert callable(generate.generate.add_arguments); assert 'miles' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, check=True, timeout=60)


def test_a_hook_that_needs_miles_says_so_when_it_is_used() -> None:
    with pytest.raises(ModuleNotFoundError, match="miles"):
        _ = generate.RolloutFn
    with pytest.raises(AttributeError, match="no attribute 'RolloutFm'"):
        _ = generate.RolloutFm  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType]


async def test_reward_func_answers_a_float_for_one_and_a_list_for_many() -> None:
    scored = SimpleNamespace(metadata=Outcome(0.5, "Submitted").as_dict(), reward=None)
    assert await generate.reward_func(None, scored) == 0.5
    assert await generate.reward_func(None, [scored, scored], extra="ignored") == [0.5, 0.5]


def test_metrics_take_sample_dicts_of_the_local_engine() -> None:
    samples = [{"metadata": discarded("InfraError", agent_metrics={"turns": 3}).as_dict()}]
    assert generate.aggregate_agent_metrics(samples)["agent/turns_mean"] == 3.0


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


@pytest.fixture(scope="session")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Test function of the checks -> what failed in it, over all its cases."""
    report = tmp_path_factory.mktemp("miles") / "report.xml"
    path = os.pathsep.join(str(folder) for folder in (install_miles(), REPOSITORY / "tests" / "stubs", REPOSITORY))
    settings = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.miles_hooks.miles_parts"]
    done = subprocess.run(
        [*command, f"--junitxml={report}", *map(str, CHECKS)],
        cwd=REPOSITORY,
        env=os.environ | settings,
        capture_output=True,
        text=True,
        timeout=240,
    )
    if not report.exists():
        pytest.fail(f"the checks did not run:\n{done.stdout[-4000:]}{done.stderr[-4000:]}", pytrace=False)
    found: dict[str, list[str]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        failures = found.setdefault(case.get("name", "").partition("[")[0], [])
        failures += [child.text or "" for child in case if child.tag in ("failure", "error", "skipped")]
    return found


def checks() -> Iterator[str]:
    for path in CHECKS:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                yield node.name


@pytest.mark.parametrize("check", list(checks()))
def test_with_the_classes_of_miles(verdicts: dict[str, list[str]], check: str) -> None:
    assert check in verdicts, "the check was not run"
    assert not verdicts[check], "\n".join(verdicts[check])

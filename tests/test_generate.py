"""The Miles hooks: importable without Miles, and right with the real classes of miles-rl."""

import ast
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

import generate
from tests.miles_hooks.miles_process import PYTEST, REPOSITORY, miles_environment
from trajectory.outcome import Outcome, discarded

CHECKS = sorted((REPOSITORY / "tests" / "miles_hooks").glob("check_*.py"))


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


@pytest.fixture(scope="session")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Test function of the checks -> what failed in it, over all its cases."""
    report = tmp_path_factory.mktemp("miles") / "report.xml"
    done = subprocess.run(
        [*PYTEST, f"--junitxml={report}", *map(str, CHECKS)],
        cwd=REPOSITORY,
        env=os.environ | miles_environment(),
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


@pytest.mark.long
@pytest.mark.parametrize("check", list(checks()))
def test_with_the_classes_of_miles(verdicts: dict[str, list[str]], check: str) -> None:
    assert check in verdicts, "the check was not run"
    assert not verdicts[check], "\n".join(verdicts[check])

"""The verifier of the repairs pays for the repair and for nothing else."""

import ast
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from examples.python_repair import grade
from examples.python_repair.families import FAMILIES, HiddenTests, draw_arguments, hidden_cases, make
from examples.python_repair.functions import functions
from tasks.words import SPLITS, Split
from tests.examples.mutants import mutants

TASK = {
    "function": "area",
    "broken": "def area(a, b): return a + b\n",
    "cases": [
        {"arguments": [2, 2], "right": "4", "broken": "4"},
        {"arguments": [3, 4], "right": "12", "broken": "7"},
        {"arguments": [1, 5], "right": "5", "broken": "6"},
    ],
}
RIGHT = "def area(a, b): return a * b\n"


def reward(source: str, partial_credit: bool = False) -> float:
    return grade.reward(source, {**TASK, "partial_credit": partial_credit})


@pytest.mark.parametrize("split", SPLITS)
def test_every_function_is_broken_and_repaired_as_marked(split: Split) -> None:
    for family in FAMILIES:
        names = {function.name for function in functions(split)[family]}
        for seed in range(6 * len(names)):
            instance = make(family, split, seed)
            verifier = instance.verifier
            assert isinstance(verifier, HiddenTests)
            task = json.loads(verifier.tests(True)["cases.json"])
            (marked,) = [function for function in functions(split)[family] if function.name == verifier.function]
            repairs = [grade.reward(marked.right(constant), task) for constant in range(2, 10)]
            assert max(repairs) == 1
            assert grade.reward(verifier.broken, task) == 0
            assert all(not case["right"].endswith("Error") for case in task["cases"])
            names.discard(verifier.function)
        assert not names, f"{names} of {family} were not drawn"


@pytest.mark.parametrize("split", SPLITS)
def test_hidden_tests_tell_a_repair_from_a_near_miss(split: Split) -> None:
    """What differs from the right function in one of fifty calls earns nothing."""
    rng, passed, checked = random.Random(0), list[str](), 0
    for family, group in functions(split).items():
        for function in group:
            right = function.right(5)
            task = {"function": function.name, "partial_credit": False, "broken": function.broken(5)}
            task["cases"] = hidden_cases(function, right, function.broken(5), random.Random(function.name), split)
            calls = [{"arguments": each} for each in draw_arguments(function, right, rng, split, 400)]
            expected = grade.answers(ast.parse(right), function.name, calls)
            assert expected is not None
            for mutant in mutants(right):
                given = grade.answers(ast.parse(mutant), function.name, calls)
                differs = given is not None and sum(g != e for g, e in zip(given, expected, strict=True)) > 8
                checked += differs
                if differs and grade.reward(mutant, task) == 1:
                    passed.append(f"{family}: {mutant}")
    assert checked > 100
    assert not passed, "".join(passed)


@pytest.mark.parametrize(
    "source",
    [
        "import os\n" + RIGHT,
        "def area(a, b): return __import__('os').system('true')\n",
        "class N(int):\n    def __eq__(self, other): return True\n" + RIGHT,
        "def area(a, b): return ().__class__.__bases__\n",
        "def area(a, b): return (x for x in [1]).gi_frame\n",
        "def area(a, b): return '{0.__class__}'.format(a)\n",
        "def area(a, b): return open('/tests/cases.json').read()\n",
        "def area(a, b): return globals()\n",
        "@print\n" + RIGHT,
        "def other(a, b): return a * b\n",
        "area = 3\n",
        "def area(a, b): return a *\n",
        "def area(a, b): return area(a, b)\n",
        "def area(a, b): return str(a * b)\n",
        "",
    ],
)
def test_other_than_a_repair_earns_nothing(source: str) -> None:
    assert reward(source) == 0
    assert reward(RIGHT) == 1


def test_partial_credit_follows_the_hidden_tests() -> None:
    half = "def area(a, b): return b + 0 * a if a == 1 else a + b\n"
    assert (reward(half), reward(half, True)) == (0, 0.25)
    worse = "def area(a, b): return 12\n"
    assert (reward(worse), reward(worse, True)) == (0, 0.1)
    assert reward("def area(a, b): return c\n", True) == 0
    assert reward("def area(a,  b):  return a + b  # the same\n", True) == 0


def run(folder: Path, file: Path) -> subprocess.CompletedProcess[str]:
    (folder / "cases.json").write_text(json.dumps({**TASK, "partial_credit": False}))
    argv = [sys.executable, "-I", "-S", grade.__file__, str(folder / "cases.json"), str(file)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def test_a_file_that_is_none_earns_nothing(tmp_path: Path) -> None:
    good = tmp_path / "good.py"
    good.write_text(RIGHT)
    assert run(tmp_path, good).stdout == "1.0\n"
    (tmp_path / "link.py").symlink_to(good)
    (tmp_path / "bytes.py").write_bytes(b"\xff\xfe")
    (tmp_path / "long.py").write_text(RIGHT + "#" * grade.MOST_BYTES)
    (tmp_path / "folder.py").mkdir()
    for name in ("link.py", "bytes.py", "long.py", "folder.py", "nowhere.py"):
        assert run(tmp_path, tmp_path / name).stdout == "0.0\n", name


@pytest.mark.parametrize("body", ["while True: pass", "return [0] * 10 ** 9"])
def test_a_function_without_end_or_measure_ends_the_grading_without_a_reward(body: str, tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text(f"def area(a, b):\n    {body}\n")
    done = run(tmp_path, tmp_path / "endless.py")
    assert done.returncode != 0 or done.stdout == "0.0\n"

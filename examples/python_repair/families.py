"""The families, one for each kind of bug; easy ones first.

| family       | the bug                                                        |
|--------------|----------------------------------------------------------------|
| method       | another method or built-in function than the one that is meant |
| operator     | another arithmetic operator                                    |
| comparison   | a comparison the wrong way round, or without its equal case    |
| boolean      | `and` for `or`, or a missing `not`                             |
| index        | another place of a list or text                                |
| start        | a loop that begins with another value                          |
| boundary     | off by one                                                     |
| variable     | another variable                                               |
| early_return | `return` inside the loop that should end first                 |
| empty        | no answer for an empty list or for zero                        |
"""

import ast
import json
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.python_repair.functions import MarkedFunction, functions
from examples.python_repair.grade import answers
from tasks.collection import Collection
from tasks.instance import Instance, validate_place
from tasks.verifier import quote
from tasks.words import Split

EASY = ("method", "operator", "comparison", "boolean", "index")
HARD = ("start", "boundary", "variable", "early_return", "empty")
FAMILIES = EASY + HARD
CASES = 40
_WORDS: Mapping[Split, tuple[str, ...]] = {
    "train": ("apple", "river", "a", "stone", "Cloud", "arena", "idea", "table"),
    "test": ("orange", "Forest", "e", "rocket", "estate", "violin", "eagle", "copper"),
}
_TEST_SH = """#!/bin/bash
python=/usr/bin/python3
[ -x $python ] || python=/usr/local/bin/python3
echo 0 >/logs/verifier/reward.txt
if reward=$($python -I -S /tests/grade.py /tests/cases.json /app/fixed.py); then
    echo "$reward" >/logs/verifier/reward.txt
fi
"""


@dataclass(frozen=True)
class HiddenTests:
    """Cases that the agent never sees: arguments, the right answer, and what the broken function does."""

    function: str
    broken: str
    cases: tuple[Mapping[str, Any], ...]

    def tests(self, partial_credit: bool) -> dict[str, str]:
        """The files of tests/."""
        task = {
            "function": self.function,
            "broken": self.broken,
            "partial_credit": partial_credit,
            "cases": self.cases,
        }
        grade = Path(__file__).with_name("grade.py").read_text(encoding="utf-8")
        return {"test.sh": _TEST_SH, "grade.py": grade, "cases.json": json.dumps(task, indent=1) + "\n"}


def _number(rng: random.Random, near: list[int]) -> int:
    """Half of them are at or beside a number of the function, where comparisons and counts go wrong."""
    return rng.choice((rng.randint(-5, 30), rng.choice(near) + rng.randint(-1, 1)))


def _argument(kind: str, rng: random.Random, words: tuple[str, ...], near: list[int], case: int) -> Any:
    """One argument. The first cases are the edges: nothing, zero, one."""
    match kind:
        case "int":
            return case if case < 2 else _number(rng, near)
        case "small":
            return rng.randint(0, 3)
        case "count":
            return case if case < 2 else rng.randint(2, 9)
        case "flag":
            return bool(rng.getrandbits(1))
        case "ints":
            return [_number(rng, near) for _ in range(case if case < 2 else rng.randint(2, 6))]
        case "words":
            return [rng.choice(words) for _ in range(case if case < 2 else rng.randint(2, 6))]
        case "some ints":
            return [_number(rng, near) for _ in range(rng.randint(1, 6))]
        case "some words":
            return [rng.choice(words) for _ in range(rng.randint(1, 4))]
        case "text":
            return rng.choice(words) + (rng.choice(words) if rng.getrandbits(1) else "")
        case "dotted":
            return ".".join(rng.sample(words, rng.randint(1, 3)))
        case _:
            raise ValueError(f"no kind of argument {kind!r}")


def draw_arguments(
    function: MarkedFunction, right: str, rng: random.Random, split: Split, count: int
) -> list[list[Any]]:
    """Arguments for `count` calls; a number beside another one is often equal to it or its neighbour."""
    near = [int(number) for number in re.findall(r"\d+", right)] or [0]
    drawn: list[list[Any]] = []
    for case in range(count):
        arguments = [_argument(kind, rng, _WORDS[split], near, case) for kind in _kinds(function.signature)]
        if function.signature in ("int int", "ints int") and case >= 2 and rng.getrandbits(1):
            beside = function.signature == "int int"
            arguments[1] = arguments[0] + rng.randint(-1, 1) if beside else rng.choice(arguments[0])
        drawn.append(arguments)
    return drawn


def _kinds(signature: str) -> list[str]:
    return [signature] if signature.startswith("some ") else signature.split()


def hidden_cases(
    function: MarkedFunction, right: str, broken: str, rng: random.Random, split: Split
) -> list[dict[str, Any]]:
    """Cases in which the two differ, then others."""
    drawn: list[dict[str, Any]] = [
        {"arguments": arguments} for arguments in draw_arguments(function, right, rng, split, 5 * CASES)
    ]
    for key, code in (("right", right), ("broken", broken)):
        given = answers(ast.parse(code), function.name, drawn)
        assert given is not None, code
        for case, answer in zip(drawn, given, strict=True):
            case[key] = answer
    drawn = [case for case in drawn if not case["right"].endswith("Error")]
    differing = [case for case in drawn if case["right"] != case["broken"]]
    assert differing, f"the bug of {function.name} never shows"
    alike = [case for case in drawn if case["right"] == case["broken"]]
    return [*differing[: CASES // 2], *alike[: CASES // 2]]


def _sentence(name: str, case: Mapping[str, Any]) -> str:
    arguments = ", ".join(repr(argument) for argument in case["arguments"])
    verb = "raises" if case["broken"].endswith("Error") else "returns"
    return f"{name}({arguments}) {verb} {case['broken']} but should return {case['right']}."


def make(family: str, split: Split, seed: int) -> Instance:
    """The instance of these three values. Raises UnknownFamily for a family or split that does not exist."""
    validate_place(FAMILIES, family, split, seed)
    rng = random.Random(f"{family}/{split}/{seed}")
    function, constant = rng.choice(functions(split)[family]), rng.randint(2, 9)
    name, right, broken = function.name, function.right(constant), function.broken(constant)
    cases = hidden_cases(function, right, broken, rng, split)
    shown = rng.choice([case for case in cases if case["right"] != case["broken"]])
    return Instance(
        family,
        split,
        seed,
        f"{broken}{_sentence(name, shown)} Write the repaired function to fixed.py.",
        f"printf %s {quote(right)} > fixed.py",
        HiddenTests(name, broken, tuple(cases)),
        {"broken.py": broken},
    )


PYTHON_REPAIR = Collection(
    name="python-repair",
    about="One bug in a small Python function",
    image="python:3.12-slim",
    groups={"all": FAMILIES, "easy": EASY, "hard": HARD},
    make=make,
)

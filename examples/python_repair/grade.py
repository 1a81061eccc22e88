"""Runs in the sandbox as the verifier: prints the reward of the repaired function.

    python3 -I -S grade.py CASES.json FILE

The function comes from the policy and runs beside the expected values, so it may hold only what a small pure function
needs: no import, no class, no name or attribute beyond the lists below. Code of that kind reaches no file, no frame
and no variable of this program. Anything else earns 0.
"""

import ast
import copy
import json
import os
import resource
import stat
import sys
from typing import Any

MOST_BYTES = 10_000
CPU_SECONDS = 2
MEMORY_BYTES = 512 << 20
NODES = (
    *(ast.Module, ast.FunctionDef, ast.arguments, ast.arg, ast.Return, ast.Assign, ast.AugAssign, ast.For, ast.While),
    *(ast.If, ast.Break, ast.Continue, ast.Pass, ast.Expr, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Compare),
    *(ast.Call, ast.keyword, ast.Attribute, ast.Subscript, ast.Slice, ast.Name, ast.Constant, ast.List, ast.Tuple),
    *(ast.Dict, ast.Set, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.comprehension, ast.Starred),
    *(ast.JoinedStr, ast.FormattedValue, ast.Lambda),
    *(ast.boolop, ast.operator, ast.unaryop, ast.cmpop, ast.expr_context),
)
BUILTINS = (
    *(abs, all, any, bool, dict, divmod, enumerate, filter, float, int, len, list, map, max, min, pow, range, reversed),
    *(round, set, sorted, str, sum, tuple, zip),
)
METHODS = frozenset(
    "add append capitalize casefold clear copy count discard endswith extend find get index insert isalnum isalpha "
    "isdigit islower isspace isupper items join keys lower lstrip partition pop remove removeprefix removesuffix "
    "replace reverse rfind rpartition rsplit rstrip setdefault sort split splitlines startswith strip swapcase title "
    "update upper values zfill".split()
)
# What code of the allowed kind can raise.
OF_THE_FUNCTION = (
    *(ArithmeticError, AttributeError, LookupError, MemoryError, NameError, RecursionError, TypeError, ValueError),
)


def parse(source: str) -> ast.Module | None:
    """The module, or None where it is not of the allowed kind."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    for node in ast.walk(tree):
        if not isinstance(node, NODES):
            return None
        if isinstance(node, ast.Name) and node.id.startswith("__"):
            return None
        if isinstance(node, ast.Attribute) and node.attr not in METHODS:
            return None
        if isinstance(node, ast.FunctionDef) and node.decorator_list:
            return None
    return tree


def answers(tree: ast.Module, name: str, cases: list[dict[str, Any]]) -> list[str] | None:
    """What the function returns in each case, as text, or the error's name; None where there is no such function."""
    namespace: dict[str, Any] = {"__builtins__": {function.__name__: function for function in BUILTINS}}
    try:
        exec(compile(tree, name, "exec"), namespace)
        function = namespace[name]
    except (*OF_THE_FUNCTION, SyntaxError):
        return None
    given: list[str] = []
    for case in cases:
        try:
            given.append(repr(function(*copy.deepcopy(case["arguments"]))))
        except OF_THE_FUNCTION as error:
            given.append(type(error).__name__)
    return given


def reward(source: str, task: dict[str, Any]) -> float:
    """1 where every case has its answer. With partial credit up to 0.5 where some that failed before have it and none
    is worse than before, 0.1 for another function that still ends without an error in every case, else 0."""
    tree = parse(source)
    if tree is None:
        return 0.0
    cases: list[dict[str, Any]] = task["cases"]
    given = answers(tree, task["function"], cases)
    if given is None:
        return 0.0
    right = [answer == case["right"] for answer, case in zip(given, cases, strict=True)]
    if all(right):
        return 1.0
    broken = ast.parse(task["broken"])
    if not task["partial_credit"] or ast.dump(tree) == ast.dump(broken):
        return 0.0
    before = [case["broken"] == case["right"] for case in cases]
    repaired = sum(now and not was for now, was in zip(right, before, strict=True))
    if repaired and all(now or not was for now, was in zip(right, before, strict=True)):
        return round(0.5 * repaired / before.count(False), 3)
    errors = {kind.__name__ for error in OF_THE_FUNCTION for kind in (error, *error.__subclasses__())}
    return 0.0 if errors & set(given) else 0.1


def read(path: str) -> str | None:
    """The text of a small regular file; None for a link, another kind of file, or bytes that are no text."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        content = os.read(descriptor, MOST_BYTES + 1) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    finally:
        os.close(descriptor)
    try:
        return content.decode() if len(content) <= MOST_BYTES else None
    except UnicodeDecodeError:
        return None


def main() -> None:
    cases, path = sys.argv[1:]
    with open(cases, encoding="utf-8") as file:
        task = json.load(file)
    source = read(path)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    print(reward(source, task) if source is not None else 0.0)


if __name__ == "__main__":
    main()

"""Near misses of a function: its source with one operator, one comparison or one number changed."""

import ast
from collections.abc import Iterator

_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod)
_COMPARISONS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)


def mutants(source: str) -> Iterator[str]:
    """Every function that is one such step away; some of them mean the same."""
    for number in range(sum(1 for _ in ast.walk(ast.parse(source)))):
        for step in range(len(_COMPARISONS)):
            tree = ast.parse(source)
            node = list(ast.walk(tree))[number]
            if _change(node, step):
                yield ast.unparse(tree) + "\n"


def _change(node: ast.AST, step: int) -> bool:
    match node:
        case ast.BinOp(op=op) if not isinstance(op, _OPERATORS[step]):
            node.op = _OPERATORS[step]()
        case ast.Compare(ops=[op]) if not isinstance(op, _COMPARISONS[step]):
            node.ops = [_COMPARISONS[step]()]
        case ast.BoolOp(op=op) if step == 0:
            node.op = ast.Or() if isinstance(op, ast.And) else ast.And()
        case ast.Constant(value=int(value)) if step < 2 and not isinstance(value, bool):
            node.value = value + (1, -1)[step]
        case _:
            return False
    return True

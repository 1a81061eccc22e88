"""What the documentation shows, and what the code says: looked up in the source itself."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GAP = "\0"  # stands for a value that a message is filled with


def pages() -> list[Path]:
    return [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted((ROOT / "examples").rglob("*.md")),
    ]


def sources() -> Iterator[Path]:
    """Every Python file that users run."""
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).parts
        if parts[0] not in ("tests", "benchmarks") and not any(part.startswith(".") for part in parts):
            yield path


@cache
def messages() -> tuple[str, ...]:
    """Texts of the code, values filled in as gaps, with what Python joins to them."""
    found: list[str] = []
    for path in sources():
        found += [text for node in ast.walk(ast.parse(path.read_text())) if (text := _text(node)) is not None]
    return tuple(dict.fromkeys(found))


def _text(node: ast.AST) -> str | None:
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_text(part) or GAP for part in parts)
        case _:
            return None


def is_printed(documented: str) -> bool:
    """Whether a message with `...` for its values is one that the code can print."""
    wanted = [piece.strip() for piece in documented.replace("`", "").split("...") if piece.strip()]
    pattern = re.compile(".*?".join(re.escape(piece) for piece in wanted), re.DOTALL)
    return any(pattern.search(text.replace("`", "")) for text in messages())

"""The functions with their bugs, read from `functions_train.txt` and `functions_test.txt`.

In these files `## ` begins a family and `# ` a function, followed by what its arguments are (`_argument` of
`examples.python_repair.families`). `@right@wrong@` marks the bug, K is a number from 2 to 9. The two files share no
function, neither by name nor by body.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tasks.words import Split

_MARK = re.compile(r"@([^@]*)@([^@]*)@")


@dataclass(frozen=True)
class MarkedFunction:
    """A function that is right and broken at once; `signature` names the kinds of its arguments."""

    signature: str
    code: str

    @property
    def name(self) -> str:
        return self.code.removeprefix("def ").partition("(")[0]

    def right(self, constant: int) -> str:
        """The source without the bug; `constant` takes the place of K."""
        return self._filled(constant, r"\1")

    def broken(self, constant: int) -> str:
        """The source with the bug."""
        return self._filled(constant, r"\2")

    def _filled(self, constant: int, side: str) -> str:
        code = _MARK.sub(side, re.sub(r"\bK\b", str(constant), self.code)) + "\n"
        return code.replace(":\n    return", ": return") if code.count("\n") == 2 else code


@cache
def functions(split: Split) -> dict[str, tuple[MarkedFunction, ...]]:
    """All of a split, by family."""
    text = Path(__file__).with_name(f"functions_{split}.txt").read_text(encoding="utf-8")
    found: dict[str, tuple[MarkedFunction, ...]] = {}
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        family, _, rest = section.partition("\n")
        blocks = [block.partition("\n") for block in re.split(r"^# ", rest, flags=re.MULTILINE)[1:]]
        found[family] = tuple(MarkedFunction(signature, code.rstrip()) for signature, _, code in blocks)
    return found

"""`<output>.rejected.jsonl`: the rows that --skip-bad-rows left out, each with its place and reason."""

from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from disk.atomic_file import atomic_file
from miles_data.findings import BadRow, Finding
from miles_data.json_text import dump
from miles_data.rows import JsonObject


def rejected_path(output: Path) -> Path:
    return output.with_name(f"{output.name}.rejected.jsonl")


class RejectedRows:
    """Makes the file with the first row; `stack` puts it in its place, or leaves nothing of it after an exception."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self.path, self._stack = path, stack
        self._file: BinaryIO | None = None

    def add(self, finding: Finding, row: JsonObject | bytes) -> None:
        """`row` is the text that stood there, or the object where the source has no text."""
        if self._file is None:
            self._file = self._stack.enter_context(atomic_file(self.path))
        said: JsonObject = {"place": finding.place, "rule": finding.rule, "reason": finding.text}
        if isinstance(row, bytes):
            said["text"] = row.strip().decode("utf-8", "backslashreplace")
        else:
            said["row"] = row
        try:
            line = dump(said)
        except BadRow:
            line = dump({key: value for key, value in said.items() if key != "row"} | {"text": _printable(row)})
        self._file.write(line + b"\n")

    def finish(self) -> None:
        """Without any rejected row, what an earlier run rejected is out of date."""
        if self._file is None:
            self.path.unlink(missing_ok=True)


def _printable(row: object) -> str:
    return repr(row).encode("utf-8", "backslashreplace").decode("utf-8")

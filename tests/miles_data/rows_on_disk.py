"""Rows written as files, and conversions of them."""

import json
from pathlib import Path
from typing import Any

from miles_data.convert import convert
from miles_data.options import ConvertOptions
from miles_data.report import Report

GOOD = {"instance_id": "a-1", "problem_statement": "Fix it.", "FAIL_TO_PASS": '["t::a"]', "n": 1, "none": None}


def good(number: int, **fields: object) -> dict[str, Any]:
    return GOOD | {"instance_id": f"a-{number}"} | fields


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def records(path: Path) -> list[dict[str, Any]]:
    """Every line of a file that must end with a line feed."""
    lines = path.read_bytes().split(b"\n")
    assert lines.pop() == b""
    return [json.loads(text) for text in lines]


def metadata(path: Path) -> list[dict[str, Any]]:
    return [record["metadata"] for record in records(path)]


def ids(path: Path) -> list[str]:
    return [fields["instance_id"] for fields in metadata(path)]


def run(source: Path, output: Path, **options: Any) -> Report:
    return convert(ConvertOptions(str(source), output, **options))

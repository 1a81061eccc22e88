"""What download_and_process_data.py does with its options."""

import inspect
import sys
from collections.abc import Sequence

import tyro

from miles_data.convert import convert
from miles_data.findings import BadRows, DataError
from miles_data.options import ConvertOptions
from miles_data.rules import DESCRIPTION


def convert_main(argv: Sequence[str] | None) -> int:
    """The exit code: 0 written or checked and good, 1 rows break rules, 2 options, input or disk do not allow it."""
    options = tyro.cli(ConvertOptions, args=argv, description=f"{inspect.getdoc(ConvertOptions)}\n\n{DESCRIPTION}")
    try:
        report = convert(options)
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1 if isinstance(error, BadRows) else 2
    print(report)
    return 0

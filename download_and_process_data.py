"""Turn a source of tasks into Miles JSONL.

    python download_and_process_data.py --input tasks-train --output train.jsonl --agent-name shell

Exit codes: 0 written, 1 rows break rules (nothing is written), 2 the options, the input or the disk do not allow it.
"""

import inspect
import sys

import tyro

from miles_data.convert import ConvertOptions, convert
from miles_data.findings import BadRows, DataError
from miles_data.rules import DESCRIPTION


def main(argv: list[str] | None = None) -> int:
    options = tyro.cli(ConvertOptions, args=argv, description=f"{inspect.getdoc(ConvertOptions)}\n\n{DESCRIPTION}")
    try:
        report = convert(options)
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1 if isinstance(error, BadRows) else 2
    print(report)
    return 0


if __name__ == "__main__":
    sys.exit(main())

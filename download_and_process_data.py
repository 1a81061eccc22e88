"""Turn a source of tasks into Miles JSONL.

    python download_and_process_data.py --input tasks-train --output train.jsonl --agent-name shell
    python download_and_process_data.py --input SWE-Gym/SWE-Gym --split train --output swe.jsonl
    python download_and_process_data.py --input train.jsonl --check --tasks-dir tasks-train

Exit codes: 0 written (or checked and good), 1 rows break rules (nothing is written), 2 the options, the input or the
disk do not allow it, 130 stopped by Ctrl-C.
"""

import inspect
import sys

import tyro

from miles_data.convert import convert
from miles_data.findings import BadRows, DataError
from miles_data.options import ConvertOptions
from miles_data.rules import DESCRIPTION


def main(argv: list[str] | None = None) -> int:
    options = tyro.cli(ConvertOptions, args=argv, description=f"{inspect.getdoc(ConvertOptions)}\n\n{DESCRIPTION}")
    try:
        report = convert(options)
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1 if isinstance(error, BadRows) else 2
    except KeyboardInterrupt:
        print("stopped; nothing was written", file=sys.stderr)
        return 130
    print(report)
    return 0


if __name__ == "__main__":
    sys.exit(main())

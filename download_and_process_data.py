"""Turn a source of tasks into Miles JSONL.

    python download_and_process_data.py --input tasks-train --output train.jsonl --agent-name shell
    python download_and_process_data.py --input SWE-Gym/SWE-Gym --split train --output swe.jsonl
    python download_and_process_data.py --input train.jsonl --check --tasks-dir tasks-train

Exit codes: 0 written (or checked and good), 1 rows break rules (nothing is written), 2 the options, the input or the
disk do not allow it, 130 stopped by Ctrl-C.
"""

import sys


def main(argv: list[str] | None = None) -> int:
    try:
        # Only here: Ctrl-C during these imports is answered as at any other time.
        from miles_data.command import convert_main

        return convert_main(argv)
    except KeyboardInterrupt:
        print("stopped; nothing was written", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())

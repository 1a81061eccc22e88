"""Write Harbor task folders: `python -m tasks --out tasks-train --split train --count 20`."""

import sys

from tasks.command import write_command
from tasks.families import TERMINAL_BASICS


def main(argv: list[str] | None = None) -> int:
    return write_command(TERMINAL_BASICS, "python -m tasks", argv)


if __name__ == "__main__":
    sys.exit(main())

"""Write Harbor task folders: `python -m examples.python_repair --out my-tasks --split train --count 20`."""

import sys

from examples.python_repair.families import PYTHON_REPAIR
from tasks.command import write_command

if __name__ == "__main__":
    sys.exit(write_command(PYTHON_REPAIR, "python -m examples.python_repair"))

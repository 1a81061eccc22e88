"""Write Harbor task folders: `python -m examples.log_fields --out my-tasks --split train --count 20`."""

import sys

from examples.log_fields.families import LOG_FIELDS
from tasks.command import write_command

if __name__ == "__main__":
    sys.exit(write_command(LOG_FIELDS, "python -m examples.log_fields"))

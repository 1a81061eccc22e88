"""Stand-in for Miles' fully asynchronous driver; see train.py beside it."""

import sys

from train import main

if __name__ == "__main__":
    sys.exit(main())

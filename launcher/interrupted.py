"""Scripts import this first: Ctrl-C while they import the rest is answered as at any other time."""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType

_STOPPED = 130  # as launcher.errors has it, whose imports would take their time before this is in place
_show = sys.excepthook


def _end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        _show(kind, error, trace)
        return
    print(f"{Path(sys.argv[0]).name}: stopped", file=sys.stderr)
    sys.exit(_STOPPED)


sys.excepthook = _end

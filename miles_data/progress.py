"""A progress bar on the terminal, and nothing where standard error is a pipe or a file."""

import sys
import time
from collections.abc import Iterable, Iterator

from miles_data.rows import Meter

_REFRESH = 0.2  # seconds


def with_progress[T](items: Iterable[T], meter: Meter, label: str) -> Iterator[T]:
    """The items, one by one."""
    return _shown(items, meter, label) if sys.stderr.isatty() else iter(items)


def _shown[T](items: Iterable[T], meter: Meter, label: str) -> Iterator[T]:
    # Only a terminal pays for the import.
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    count = DownloadColumn() if meter.unit == "bytes" else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), count, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=meter.total or None)
        shown = time.monotonic()
        for number, item in enumerate(items):
            yield item
            if time.monotonic() - shown > _REFRESH:
                shown = time.monotonic()
                bar.update(task, completed=meter.done(number + 1), total=meter.total or None)

"""What verify_progress.py does with its options."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from disk.closed_stream import lead_nowhere
from progress.dump_reader import ReaderMissing
from progress.follow import follow
from progress.launch import read_launch
from progress.options import BadOption, CompareOptions, VerifyOptions
from progress.read_run import read_run
from progress.run_report import RunReport, Verdict
from progress.scan import Report
from progress.show import as_json, print_report
from progress.wandb_gaps import wandb_gaps
from progress.wandb_rows import WandbUnreadable, wandb_rows

CANNOT_WORK = 2
_FEW_FILES = 20  # read without a bar


class CannotWrite(Exception):
    """A picture or page could not be written; the message says which and why."""


def verify_main(argv: Sequence[str]) -> int:
    """The exit code of the verdict; 2 for options that cannot work."""
    options = tyro.cli(VerifyOptions, prog="verify_progress.py", args=list(argv))
    return _with_exit_code(lambda console: verify(options, console))


def compare_main(argv: Sequence[str]) -> int:
    """0 compared, 1 no step in common, 2 a run without steps or options that cannot work."""
    options = tyro.cli(CompareOptions, prog="verify_progress.py compare", args=list(argv))
    return _with_exit_code(lambda console: compare(options, console))


def verify(options: VerifyOptions, console: Console) -> int:
    """Raises BadOption, ReaderMissing, WandbUnreadable and CannotWrite, and whatever printing raises."""
    options.check()
    settings = options.reading.settings()

    def look() -> RunReport:
        with _bar() as report:
            found = read_run(options.folder, settings, report)
        return found if options.wandb is None or found.verdict is Verdict.NO_DATA else _with_wandb(found, options.wandb)

    def draw(report: RunReport) -> None:
        _draw(report, options)

    if options.follow:
        report = follow(look, draw, console, options.interval, json=options.json)
        if console.is_terminal and not options.json:
            print_report(report, console)
        return report.exit_code
    report = look()
    draw(report)
    with _reader_may_leave(console):
        if options.json:
            print(as_json(report), file=console.file, flush=True)
        else:
            print_report(report, console)
    return report.exit_code


def compare(options: CompareOptions, console: Console) -> int:
    """Raises as `verify`."""
    from progress.compare import CannotCompare, compare_runs
    from progress.compare_table import print_comparison
    from progress.overlay import plot_overlay

    settings = options.reading.settings()
    try:
        comparison = compare_runs([read_run(folder, settings) for folder in options.folders])
    except CannotCompare as error:
        raise BadOption(str(error)) from None
    if options.plot is not None:
        with _writing(options.plot):
            plot_overlay(options.plot, [(f"{run.letter} {run.name}", run.report) for run in comparison.runs])
    with _reader_may_leave(console):
        if options.json:
            print(json.dumps(comparison.as_dict(), allow_nan=False), file=console.file, flush=True)
        else:
            print_comparison(comparison, console)
    return comparison.exit_code


def _draw(report: RunReport, options: VerifyOptions) -> None:
    if options.plot is not None:
        with _writing(options.plot):
            from progress.plot import plot_run

            plot_run(options.plot, report)
    if options.html is not None:
        with _writing(options.html):
            # Only now: a look at a run does not need it, and not every machine has it.
            from progress.html_page import write_page
            from progress.page_samples import PageSettings

            write_page(options.html, report, PageSettings(rollouts=options.samples, trials_dir=options.trials_dir))


@contextmanager
def _writing(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise CannotWrite(f"{path} cannot be written ({error.strerror or error}); name another file") from None
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        raise CannotWrite(f"{path} needs {package}, which is not installed: pip install {package}") from None


def _with_wandb(report: RunReport, run: str) -> RunReport:
    launch = read_launch(report.folder)
    gaps = wandb_gaps(report, wandb_rows(run, launch), launch)
    return replace(report, findings=(*report.findings, *gaps))


@contextmanager
def _bar() -> Generator[Report]:
    """A bar on standard error while many new dumps are read, if a person is there to see it."""
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("reading dumps"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    task = bar.add_task("dumps", total=None)

    def report(read: int, of: int) -> None:
        if of > _FEW_FILES and not bar.live.is_started:
            bar.start()
        bar.update(task, completed=read, total=of)

    try:
        yield report
    finally:
        bar.stop()


def _with_exit_code(run: Callable[[Console], int]) -> int:
    out: TextIO = sys.stdout
    if isinstance(out, TextIOWrapper):
        # A name in a dump may hold what the terminal's encoding does not.
        out.reconfigure(errors="backslashreplace")
    console = _Console(highlight=False)
    try:
        return run(console)
    except (BadOption, ReaderMissing, WandbUnreadable, CannotWrite) as error:
        print(f"verify_progress.py: {error}", file=sys.stderr)
        return CANNOT_WORK
    except BrokenPipeError:
        lead_nowhere(sys.stdout)
        return 0


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """rich would end the process with 1, which here is a verdict."""
        raise BrokenPipeError


@contextmanager
def _reader_may_leave(console: Console) -> Generator[None]:
    """Whoever read may have seen enough (`| head -1`); the verdict stands."""
    try:
        yield
    except BrokenPipeError:
        lead_nowhere(console.file)

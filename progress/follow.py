"""A run that is watched: a terminal is drawn in place, a pipe gets a line for everything that changed."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from rich.console import Console
from rich.live import Live

from progress.run_report import RunReport, Verdict
from progress.show import as_json, screen, step_line, verdict_line
from progress.step import Step

_BESIDE_STEPS = 14  # lines of a screen that the table does not get
_LEAST_STEPS = 5

Look = Callable[[], RunReport]


def follow(
    look: Look, changed: Callable[[RunReport], None], console: Console, interval: float, *, json: bool
) -> RunReport:
    """Look every `interval` seconds until the run has finished; answers the last report.

    `changed` is called with the first report and with every one that says something new; ages alone are nothing new.
    """
    live = None
    if console.is_terminal and not console.is_dumb_terminal and not json:
        live = Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop")
    context: AbstractContextManager[object] = live or nullcontext()
    with context:
        before: RunReport | None = None
        while True:
            report = look()
            new = before is None or _content(before) != _content(report)
            if new:
                changed(report)
            if live is not None:
                rows = max(_LEAST_STEPS, console.height - _BESIDE_STEPS)
                live.update(screen(report, console.width, rows, _LEAST_STEPS), refresh=True)
            elif new:
                _print(report, before, console, json=json)
            if report.verdict is Verdict.FINISHED:
                return report
            before = report
            time.sleep(interval)


def _content(report: RunReport) -> object:
    found = [(finding.kind, finding.rollout_id) for finding in report.findings]
    return (report.verdict, report.last_trained, report.steps, report.evaluations, dict(report.exit_statuses), found)


def _print(report: RunReport, before: RunReport | None, console: Console, *, json: bool) -> None:
    lines = [as_json(report, one_line=True)] if json else [verdict_line(report)]
    if not json:
        known: dict[int, Step] = {step.rollout_id: step for step in before.steps} if before is not None else {}
        lines += [step_line(step, report) for step in report.steps if known.get(step.rollout_id) != step]
    for line in lines:
        print(line, file=console.file)
    console.file.flush()

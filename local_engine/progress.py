"""What the person sees of a run: a plan, a live line while a rollout runs, one table row for each, a summary.

On a terminal the rows scroll and the lines of the rollout in progress stay at the bottom; in a pipe or a file every
event is one plain line.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from local_engine.step_row import StepRow
from local_engine.step_table import (
    ASYNC_LEGEND,
    HELDOUT_STYLE,
    LEGEND,
    REWARD_STYLE,
    StepTable,
    absent_columns,
    bar,
    duration,
    plain_line,
    sparkline,
)
from progress.visible import visible

__all__ = ["RunProgress", "StepRow"]

_HEADER_EVERY = 20  # rows; a header scrolls away with them
_PLAIN_TRIALS_SECONDS = 30.0  # between two lines about trials in a pipe, so that a slow rollout is seen to live
_MAX_WIDTH = 100


class RunProgress:
    """Shows the run of `num_rollout` rollouts; use as a context manager, call its methods as things happen.

    Nothing here raises for what it is shown; a closed pipe raises BrokenPipeError as any print does.
    """

    def __init__(self, num_rollout: int, console: Console | None = None, error_console: Console | None = None) -> None:
        self.num_rollout = num_rollout
        self.console = console or Console(highlight=False)
        self.error_console = error_console or Console(stderr=True, highlight=False)
        self._terminal = self.console.is_terminal and not self.console.is_dumb_terminal
        self._live: Live | None = None
        self._table: StepTable | None = None
        self._rows = 0
        self._rewards: list[float] = []
        self._rollout_id: int | None = None
        self._phase = ""
        self._phase_started = time.monotonic()
        self._trials: tuple[int, int, int] | None = None
        self._trials_printed = 0.0
        self._eta: tuple[float, float] | None = None  # seconds left, and when that was said
        self._warnings: dict[str, int] = {}

    def __enter__(self) -> Self:
        if self._terminal:
            # transient: what is left on the screen at the end are the rows and the summary, not a frozen bar.
            self._live = Live(console=self.console, get_renderable=self._render, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop_live()

    def plan(self, rows: Sequence[tuple[str, str]]) -> None:
        """What will run, how long it takes, where things land: (name, value) pairs, before anything starts."""
        self._titled("Plan", rows)

    def summary(self, rows: Sequence[tuple[str, str]]) -> None:
        """What came out and how to go on; the live lines are over after it."""
        self._stop_live()
        repeated = {text: count for text, count in self._warnings.items() if count > 1}
        for text, count in repeated.items():
            self._line(f"warning, {count} times: {text}", "magenta")
        self._titled("Result", rows)

    def step_started(self, rollout_id: int) -> None:
        self._rollout_id = rollout_id
        self._trials = None
        self._trials_printed = time.monotonic()
        self._set_phase("")

    def trials(self, done: int, total: int, discarded: int) -> None:
        """Trajectories of the rollout or evaluation in progress: `done` of `total` ended, `discarded` of them lost."""
        self._trials = (done, total, discarded)
        if not self._terminal and time.monotonic() - self._trials_printed >= _PLAIN_TRIALS_SECONDS:
            self._trials_printed = time.monotonic()
            self._line(f"{self._subject()}  trials {done}/{total}  discarded {discarded}")

    def phase(self, text: str) -> None:
        """What goes on now, in a few words: "training", "evaluating on held-out instances", "saving"."""
        self._trials = None
        self._set_phase(text)
        if not self._terminal and self._rollout_id is None:
            self._line(text)

    def step_finished(self, row: StepRow) -> None:
        self._rewards.append(row.reward_mean)
        self._eta = None if row.eta_seconds is None else (row.eta_seconds, time.monotonic())
        self._rollout_id = None
        self._trials = None
        self._set_phase("")
        if not self._terminal:
            self._line(plain_line(row, self.num_rollout))
            return
        absent = absent_columns(row)
        if self._table is None:
            legend = LEGEND if row.staleness is None else f"{LEGEND}\n{ASYNC_LEGEND}"
            self.console.print(Text(f"\n{legend}\n", style="dim"))
        if self._table is None or self._table.absent - absent:
            self._table = StepTable(self.num_rollout, min(self.console.width, _MAX_WIDTH), absent)
            self._rows = 0
        if self._rows % _HEADER_EVERY == 0:
            self.console.print(self._table.header(), no_wrap=True, crop=True)
        self._rows += 1
        self.console.print(self._table.row(row), no_wrap=True, crop=True)

    def evaluation(self, rollout_id: int, success: float, per_family: Mapping[str, float]) -> None:
        """Held-out success before rollout `rollout_id` (the number of rollouts trained so far), by family."""
        self._trials = None
        self._set_phase("")
        moment = "before training" if rollout_id == 0 else f"after {rollout_id} rollout{'s' if rollout_id > 1 else ''}"
        if not self._terminal:
            families = "  ".join(f"{name} {value:.2f}" for name, value in per_family.items())
            self._line(f"held-out {success:.3f} {moment}  {families}".rstrip())
            return
        line = Text.assemble(
            ("held-out ", HELDOUT_STYLE),
            (f"{success:.3f} ", f"bold {HELDOUT_STYLE}"),
            (bar(success) + " ", HELDOUT_STYLE),
            (moment, ""),
        )
        self.console.print(line)
        if per_family:
            self.console.print(self._families(per_family))

    def warning(self, text: str) -> None:
        """Something that does not end the run; the same text is shown once and counted."""
        self._warnings[text] = self._warnings.get(text, 0) + 1
        if self._warnings[text] == 1:
            self._line(f"warning: {text}", "magenta")

    def error(self, text: str) -> None:
        """Why the run ends, on standard error; the live lines are over after it."""
        self._stop_live()
        self.error_console.print(Text(f"error: {visible(text)}", style="bold"), soft_wrap=True)

    def _set_phase(self, text: str) -> None:
        self._phase = text
        self._phase_started = time.monotonic()

    def _line(self, text: str, style: str = "") -> None:
        text = visible(text)  # what servers, tasks and data say is in it
        if self._terminal:
            self.console.print(Text(text, style=style))
        else:
            # soft_wrap: a log line stays one line, whatever width the console believes in.
            self.console.print(Text(text), soft_wrap=True)
            self.console.file.flush()

    def _titled(self, title: str, rows: Sequence[tuple[str, str]]) -> None:
        if not self._terminal:
            for name, value in rows:
                self._line(f"{title.lower()}: {name}: {value}" if name else f"{title.lower()}: {value}")
            return
        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim", no_wrap=True, justify="right")
        table.add_column(overflow="fold")
        for name, value in rows:
            table.add_row(name, Text(visible(value)))
        width = min(self.console.width, _MAX_WIDTH)
        self.console.print(Rule(title, align="left", style="dim"), width=width)
        # A path is copied by the person who reads it, so a value may be wider than the table but is never cut.
        self.console.print(table)
        self.console.print()

    def _families(self, per_family: Mapping[str, float]) -> Text:
        cells = [f"{visible(name)} {value:.2f}" for name, value in per_family.items()]
        width = max(len(cell) for cell in cells)
        per_line = max(1, (min(self.console.width, _MAX_WIDTH) - 9) // (width + 2))
        lines = [cells[start : start + per_line] for start in range(0, len(cells), per_line)]
        padded = ["  ".join(cell.rjust(width) for cell in line) for line in lines]
        return Text("\n".join(" " * 9 + line for line in padded), style="dim")

    def _subject(self) -> str:
        if self._rollout_id is None:
            return self._phase or "starting"
        return f"rollout {self._rollout_id}/{self.num_rollout - 1}"

    def _stop_live(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _render(self) -> Group:
        lines = [self._now_line()]
        if self._rewards:
            lines.append(self._run_line())
        return Group(*lines)

    def _now_line(self) -> Text:
        line = Text(no_wrap=True, overflow="ellipsis")
        line.append(self._subject(), style="bold")
        if self._rollout_id is not None and self._phase:
            line.append(f"  {self._phase}")
        if self._trials is not None:
            done, total, discarded = self._trials
            width = 24
            filled = round(width * done / total) if total else 0
            line.append("  ")
            line.append("━" * filled, style=REWARD_STYLE)
            line.append("━" * (width - filled), style="dim")
            line.append(f"  {done}/{total} trials")
            if discarded:
                line.append(f", {discarded} discarded", style="bold magenta")
        line.append(f"  {duration(time.monotonic() - self._phase_started)}", style="dim")
        return line

    def _run_line(self) -> Text:
        line = Text(no_wrap=True, overflow="ellipsis")
        line.append("reward ", style="dim")
        line.append(f"{self._rewards[0]:.2f} ")
        line.append(sparkline(self._rewards, 30), style=REWARD_STYLE)
        line.append(f" {self._rewards[-1]:.2f}", style="bold")
        if self._eta is not None:
            left = max(0.0, self._eta[0] - (time.monotonic() - self._eta[1]))
            line.append(f"   about {duration(left)} left" if left >= 1 else "   almost done", style="dim")
        line.append("   Ctrl-C saves and stops", style="dim")
        return line

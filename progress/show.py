"""A report on the screen or as text: the verdict first, then the steps, what ended how, and what is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.text import Text

from progress.run_report import Finding, RunReport, Verdict
from progress.step import Evaluation, Step
from progress.table import GAP, LEGEND, StepTable, step_table
from progress.visible import visible
from progress.words import plural

ROWS = 40  # of a terminal's table, the latest; a pipe and --json get all
FINDINGS = 20  # on a terminal; likewise
_STATUSES = 12
_STYLES = {
    Verdict.ADVANCING: "bold green",
    Verdict.FINISHED: "bold green",
    Verdict.NO_DATA: "bold yellow",
}
_BAD = "bold magenta"


def print_report(report: RunReport, console: Console) -> None:
    """A table on a terminal; in a pipe plain lines, none of them cut or wrapped."""
    if console.is_terminal:
        console.print(screen(report, console.width, ROWS, FINDINGS))
    else:
        for line in plain_lines(report):
            console.print(Text(line), soft_wrap=True)


def as_json(report: RunReport, *, one_line: bool = False) -> str:
    return json.dumps(report.as_dict(), indent=None if one_line else 2, allow_nan=False)


def verdict_line(report: RunReport) -> str:
    return visible(f"{report.verdict}: {report.reason}").replace("\n", " ")


def plain_lines(report: RunReport) -> Iterator[str]:
    """Everything, as a log or a mail holds it."""
    yield verdict_line(report)
    if report.steps:
        yield ""
        yield from step_table(report.steps, report.read_at).lines()
    for part in (_evaluations(report.evaluations), _statuses(report), _findings(report.findings, None)):
        if part:
            yield ""
            yield from part


def step_line(step: Step, report: RunReport) -> str:
    """One step as a line that says what its numbers are: what a followed run prints in a pipe."""
    table = step_table([step], report.read_at)
    pairs = zip((column.title for column in table.columns), table.rows[0], strict=True)
    return "  ".join(f"{title} {cell}" for title, cell in pairs if title != "age")


def screen(report: RunReport, width: int, rows: int, findings: int) -> RenderableType:
    """At most `rows` steps, the latest, and `findings` findings."""
    parts: list[RenderableType] = [_verdict(report)]
    shown = report.steps[-rows:] if rows > 0 else ()
    if shown:
        parts += ["", *_table(step_table(shown, report.read_at, width), shown)]
        earlier = len(report.steps) - len(shown)
        more = f"{earlier} earlier rollouts are not shown. " if earlier else ""
        parts.append(Text(f"{more}{LEGEND}", style="dim"))
    for lines in (_evaluations(report.evaluations[-3:]), _statuses(report)):
        if lines:
            parts += ["", *(Text(line) for line in lines)]
    if report.findings and findings > 0:
        parts += ["", *(Text(line, style="yellow") for line in _findings(report.findings, findings))]
    return Group(*parts)


def _verdict(report: RunReport) -> Text:
    line = Text(verdict_line(report))
    line.stylize(_STYLES.get(report.verdict, "bold red"), 0, len(report.verdict))
    return line


def _table(table: StepTable, steps: Sequence[Step]) -> Iterator[Text]:
    yield Text(table.line([column.title for column in table.columns]), style="dim")
    for step, cells in zip(steps, table.rows, strict=True):
        line, end = Text(table.line(cells), style="dim" if step.leftover else ""), 0
        for column, width in zip(table.columns, table.widths, strict=True):
            end += width
            if column.bad(step):
                line.stylize(_BAD, end - width, end)
            end += GAP
        yield line


def _evaluations(evaluations: Sequence[Evaluation]) -> list[str]:
    return [
        f"evaluation before rollout {one.rollout_id}: reward "
        + ("unknown" if one.reward_mean is None else f"{one.reward_mean:.3f}")
        + ("" if one.solved is None else f", solved {one.solved:.0%}")
        + f", {one.trajectories} trajectories"
        for one in evaluations
    ]


def _statuses(report: RunReport) -> list[str]:
    counts = report.exit_statuses
    total = sum(counts.values())
    if not total:
        return []
    ranked = list(counts.items())
    width = max(len(visible(name)) for name, _ in ranked[:_STATUSES])
    lines = [f"{visible(name):<{width}}  {count:>6}  {count / total:>4.0%}" for name, count in ranked[:_STATUSES]]
    rest = ranked[_STATUSES:]
    more = [f"{len(rest)} more, {sum(count for _, count in rest)} trajectories"] if rest else []
    return [f"how {total} trajectories ended:", *lines, *more]


def _findings(findings: Sequence[Finding], most: int | None) -> list[str]:
    """The latest, since what is wrong now is at the end."""
    shown = findings if most is None else findings[-most:]
    more = len(findings) - len(shown)
    if not findings:
        return []
    head = plural(len(findings), "finding") + (f", the last {len(shown)} of them (--json has all)" if more else "")
    return [f"{head}:", *(" ".join(visible(f"{one.kind}: {one.text}").split()) for one in shown)]

"""One page with everything about a run: no network, no script but its own, and nothing of a model's that acts."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from disk.atomic_file import atomic_file
from local_engine.picture import DARK, LIGHT
from progress.page_samples import PageSettings, embedded_samples
from progress.plot import run_name, run_png
from progress.run_report import RunReport
from progress.table import LEGEND, step_table
from progress.visible import shortened, visible
from trajectory.exit_status import STATUSES

_ROWS: Final = 3_000  # of the table of steps, the latest
_FEW_ROWS: Final = 200  # of other tables
_FOLDER: Final = Path(__file__).parent / "page"


@dataclass(frozen=True)
class Column:
    title: str
    text: bool = False  # left-aligned, and wraps


@dataclass
class Table:
    """Cells are plain text; `links` maps the first cell of a row to an address within the page."""

    columns: Sequence[Column]
    rows: list[list[str]]
    note: str = ""
    links: Mapping[str, str] = field(default_factory=dict[str, str])
    bad: Set[tuple[int, int]] = frozenset()  # row and column of cells to look at


def write_page(path: Path, report: RunReport, settings: PageSettings | None = None) -> None:
    """Write `path`, in place of a page of the same name only when it is complete.

    Raises OSError, and ReaderMissing where this machine cannot open dumps.
    """
    page = render_page(report, settings).encode("utf-8")
    with atomic_file(path) as file:
        file.write(page)


def render_page(report: RunReport, settings: PageSettings | None = None) -> str:
    """The page as HTML. Its size has a limit whatever the run holds; what is left out is said in it."""
    style, script = ((_FOLDER / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    steps, left_out = embedded_samples(report, settings or PageSettings())
    environment = Environment(
        loader=FileSystemLoader(_FOLDER), autoescape=True, undefined=StrictUndefined, finalize=_seen
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    read_at = datetime.fromtimestamp(report.read_at, UTC)
    return environment.get_template("page.html.j2").render(
        policy=_policy(style, script),
        title=run_name(report.folder),
        report=report,
        written=f"{report.folder.absolute()}, read at {read_at:%Y-%m-%d %H:%M:%S} UTC",
        style=Markup(style),
        script=Markup(script),
        light_picture=base64.b64encode(run_png(report, LIGHT)).decode(),
        dark_picture=base64.b64encode(run_png(report, DARK)).decode(),
        steps=_step_table(report, [step["id"] for step in steps]),
        evaluations=_evaluation_table(report),
        statuses=_status_table(report),
        findings=_finding_table(report),
        trajectories=steps,
        left_out=left_out,
    )


def _policy(style: str, script: str) -> str:
    """Nothing is loaded, sent or run but the page's own style and script, whatever gets into the page."""
    rules = {"style-src": style, "script-src": script}
    hashes = "; ".join(
        f"{rule} 'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for rule, text in rules.items()
    )
    return (
        f"default-src 'none'; img-src data:; {hashes}; base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'"
    )


def _seen(value: object) -> object:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _step_table(report: RunReport, linked: Sequence[int]) -> Table:
    shown = report.steps[-_ROWS:]
    found = step_table(shown, report.read_at)
    hidden = len(report.steps) - len(shown)
    more = f"{hidden:,} earlier rollouts are left out. " if hidden else ""
    return Table(
        [Column(column.title) for column in found.columns],
        [list(row) for row in reversed(found.rows)],
        more + LEGEND,
        {str(rollout): f"#step={rollout}" for rollout in linked},
        {
            (number, place)
            for number, step in enumerate(reversed(shown))
            for place, column in enumerate(found.columns)
            if column.bad(step)
        },
    )


def _evaluation_table(report: RunReport) -> Table:
    rows = [
        [str(one.rollout_id), _digits(one.reward_mean, 3), _percent(one.solved), str(one.trajectories)]
        for one in report.evaluations[-_ROWS:]
    ]
    return Table([Column(name) for name in ("before rollout", "reward", "solved", "trajectories")], rows)


def _status_table(report: RunReport) -> Table:
    total = sum(report.exit_statuses.values())
    columns = [Column("exit status", True), Column("trajectories"), Column("share"), Column("worth", True)]
    shown = list(report.exit_statuses.items())[:_FEW_ROWS]
    rows = [
        [shortened(name), f"{count:,}", _percent(count / total), f"{known.worth}: {known.meaning}" if known else ""]
        for name, count in shown
        for known in [STATUSES.get(name)]
    ]
    hidden = len(report.exit_statuses) - len(shown)
    return Table(columns, rows, f"{hidden:,} more are left out." if hidden else "")


def _finding_table(report: RunReport) -> Table:
    columns = [Column("kind", True), Column("rollout"), Column("what", True)]
    rows = [
        [finding.kind.value, "" if finding.rollout_id is None else str(finding.rollout_id), shortened(finding.text)]
        for finding in report.findings[:_FEW_ROWS]
    ]
    hidden = len(report.findings) - len(rows)
    return Table(columns, rows, f"{hidden:,} more are left out; --json has them all." if hidden else "")


def _digits(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"

"""One page with everything about a run: no network, no script but its own, and nothing of a model's that acts."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from disk.atomic_file import atomic_file
from local_engine.picture import DARK, LIGHT
from progress.plot import run_name, run_png
from progress.read_run import read_samples
from progress.recorded_trajectory import RecordedTrajectory
from progress.run_report import RunReport
from progress.sample_choice import choose_samples, choose_steps
from progress.step import Step
from progress.visible import shortened, visible
from trajectory.exit_status import STATUSES

SAMPLES: Final = 200
"""Trajectories on a page where nothing else is asked for."""

_PAGE_BYTES: Final = 16 << 20  # of trajectories; a browser opens such a page in a second
_FIRST_MESSAGES, _LAST_MESSAGES = 10, 50
_COMMANDS: Final = 100
_ROWS: Final = 3_000  # of the table of steps, the latest
_FINDINGS: Final = 200
_FOLDER: Final = Path(__file__).parent / "page"


@dataclass(frozen=True)
class PageSettings:
    """What of a run goes into its page."""

    samples: int = SAMPLES  # trajectories at most
    rollouts: tuple[int, ...] = ()  # show whole rollouts instead of a choice from all
    trials_dir: Path | None = None  # folders of the trials, for the verifier's output; None: the local engine's


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


def write_page(path: Path, report: RunReport, settings: PageSettings = PageSettings()) -> None:
    """Write `path`, in place of a page of the same name only when it is complete. Raises OSError."""
    page = render_page(report, settings).encode("utf-8")
    with atomic_file(path) as file:
        file.write(page)


def render_page(report: RunReport, settings: PageSettings = PageSettings()) -> str:
    """The page as HTML. Its size has a limit whatever the run holds; what is left out is said in it."""
    style, script = ((_FOLDER / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    steps, left_out = _trajectories(report, settings)
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


def _trajectories(report: RunReport, settings: PageSettings) -> tuple[list[dict[str, Any]], str]:
    """The steps with their samples as the page's script reads them, and a sentence on what is not among them."""
    there = {step.rollout_id: step.trajectories for step in report.steps}
    if settings.rollouts:
        chosen = [(rollout, there.get(rollout, 0)) for rollout in dict.fromkeys(settings.rollouts)]
    else:
        chosen = choose_steps(report.steps, settings.samples)
    shown: dict[int, dict[str, Any]] = {}
    room, count, unread = _PAGE_BYTES, 0, list[int]()
    for rollout, most in chosen:
        found = choose_samples(read_samples(report.folder, rollout, settings.trials_dir), most)
        if not found:
            unread.append(rollout)
            continue
        samples: list[dict[str, Any]] = []
        for trajectory in found:
            sample = _sample(trajectory)
            room -= len(json.dumps(sample))
            if room < 0:
                break
            samples.append(sample)
        if samples:
            shown[rollout] = _step(rollout, samples, there.get(rollout, len(samples)))
            count += len(samples)
        if room < 0:
            break
    total = sum(there.values())
    said = f"{count:,} of {total:,} trajectories, of {len(shown):,} of {len(there):,} rollouts, are on this page."
    if count < total and not settings.rollouts:
        said += " Chosen: the last rollout, the first, those of highest and lowest reward, and others evenly spaced;"
        said += " of each the highest and lowest reward and every exit status."
    if room < 0:
        said += f" More would make it larger than {_PAGE_BYTES >> 20} MiB."
    if unread:
        said += f" No readable trajectories of rollout {', '.join(map(str, unread[:10]))}."
    if count < total:
        said += " Whole rollouts: --sample ROLLOUT_ID."
    return [shown[rollout] for rollout in sorted(shown)], said


def _step(rollout: int, samples: list[dict[str, Any]], there: int) -> dict[str, Any]:
    return {"id": rollout, "label": f"{rollout} ({len(samples)} of {there} trajectories)", "samples": samples}


def _sample(trajectory: RecordedTrajectory) -> dict[str, Any]:
    """A trajectory in plain, shortened text."""
    reward = "none" if trajectory.reward is None else f"{trajectory.reward:g}"
    status = trajectory.exit_status or trajectory.status
    name = _plain(trajectory.instance_id or "?")
    facts = {
        "task": name,
        "reward": reward,
        "exit status": _plain(status),
        "sample": f"{_known(trajectory.index)} of group {_known(trajectory.group_index)}, {_plain(trajectory.status)}",
        "response tokens": f"{trajectory.response_tokens:,}, of which {trajectory.trained_tokens:,} are trained on",
        "turns": _known(trajectory.turns),
        "trial": _plain(trajectory.trial or ""),
    }
    messages, commands = trajectory.messages, trajectory.commands
    hidden = len(messages) - _FIRST_MESSAGES - _LAST_MESSAGES
    if hidden > 0:
        facts["messages"] = f"{len(messages)}; {hidden} after the first {_FIRST_MESSAGES} are left out"
        messages = (*messages[:_FIRST_MESSAGES], *messages[-_LAST_MESSAGES:])
    if len(commands) > _COMMANDS:
        facts["commands"] = f"{len(commands)}; all but the last {_COMMANDS} are left out"
    verifier = trajectory.verifier_output
    return {
        "label": f"{_known(trajectory.index)}: {name:.48}, reward {reward}, {_plain(status):.32}",
        "facts": [[title, value] for title, value in facts.items() if value],
        "messages": [[_plain(message.role), _plain(message.content)] for message in messages],
        "commands": [_plain(command) for command in commands[-_COMMANDS:]],
        "verifier": None if verifier is None else _plain(verifier),
    }


def _plain(text: str) -> str:
    return visible(shortened(text))


def _known(value: int | None) -> str:
    return "?" if value is None else str(value)


def _step_table(report: RunReport, linked: Sequence[int]) -> Table:
    names = (
        "rollout", "ranks", "reward", "std", "solved", "signal", "discarded", "truncated", "never ran", "tokens",
        "turns", "rollout s", "training s", "written (UTC)",
    )  # fmt: skip
    steps = report.steps[-_ROWS:]
    hidden = len(report.steps) - len(steps)
    return Table(
        [Column(name) for name in names],
        [_step_row(step) for step in reversed(steps)],
        f"The {hidden:,} rollouts before are left out." if hidden else "",
        {str(rollout): f"#step={rollout}" for rollout in linked},
    )


def _step_row(step: Step) -> list[str]:
    written = "" if step.written_at is None else f"{datetime.fromtimestamp(step.written_at, UTC):%m-%d %H:%M:%S}"
    return [
        str(step.rollout_id),
        f"{len(step.ranks)}/{step.ranks_expected}",
        _digits(step.reward_mean, 3),
        _digits(step.reward_std, 3),
        _percent(step.solved),
        f"{step.groups_with_signal}/{step.groups}",
        str(step.discarded),
        str(step.truncated),
        _percent(step.never_ran),
        _digits(step.tokens, 0),
        _digits(step.turns, 1),
        _digits(step.rollout_seconds, 1),
        _digits(step.training_seconds, 1),
        f"{written}, left over" if step.leftover else written,
    ]


def _evaluation_table(report: RunReport) -> Table:
    rows = [
        [str(one.rollout_id), _digits(one.reward_mean, 3), _percent(one.solved), str(one.trajectories)]
        for one in report.evaluations[-_ROWS:]
    ]
    return Table([Column(name) for name in ("before rollout", "reward", "solved", "trajectories")], rows)


def _status_table(report: RunReport) -> Table:
    total = sum(report.exit_statuses.values())
    columns = [Column("exit status", True), Column("trajectories"), Column("share"), Column("worth", True)]
    rows = [
        [name, f"{count:,}", _percent(count / total), f"{known.worth}: {known.meaning}" if known else ""]
        for name, count in report.exit_statuses.items()
        for known in [STATUSES.get(name)]
    ]
    return Table([*columns], rows)


def _finding_table(report: RunReport) -> Table:
    columns = [Column("kind", True), Column("rollout"), Column("what", True)]
    rows = [
        [finding.kind.value, "" if finding.rollout_id is None else str(finding.rollout_id), shortened(finding.text)]
        for finding in report.findings[:_FINDINGS]
    ]
    hidden = len(report.findings) - len(rows)
    return Table(columns, rows, f"{hidden:,} more are left out; --json has them all." if hidden else "")


def _digits(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"

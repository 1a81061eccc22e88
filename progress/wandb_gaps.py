"""What of a run W&B lacks, and what it will lack after a resume."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from local_engine.manifest import TRACKER
from progress.launch import Launch
from progress.run_report import Finding, Kind, RunReport
from progress.wandb_rows import WandbRows
from progress.words import listed


def wandb_gaps(report: RunReport, rows: WandbRows, launch: Launch) -> tuple[Finding, ...]:
    """A finding for each step on disk without a row, and one for the rows that a resume will make W&B drop."""
    return (*_missing(report, rows), *_dropped(report, rows, launch))


def _missing(report: RunReport, rows: WandbRows) -> Iterator[Finding]:
    for step in report.steps:
        if step.rollout_id not in rows.steps:
            text = f"rollout {step.rollout_id} is on disk and not in W&B: {rows.name}"
            yield Finding(Kind.WANDB_GAP, step.rollout_id, text)


def _dropped(report: RunReport, rows: WandbRows, launch: Launch) -> Iterator[Finding]:
    """W&B's step counter does not go back: what a resumed run logs for steps that it has is dropped in silence."""
    # The local engine logs its steps as a metric of their own, which W&B does not drop.
    if launch.engine == "local":
        return
    done = _checkpointed(report.folder, launch)
    if done is None:
        return
    again = [step for step in rows.steps if step >= done]
    if again:
        text = (
            f"a resume goes on at rollout {done}, and W&B has rows of {listed(again)} already: it will drop those that "
            "are logged again. Trust the dumps, or resume with another --wandb-run-name"
        )
        yield Finding(Kind.WANDB_GAP, done, text)


def _checkpointed(traces: Path, launch: Launch) -> int | None:
    """Rollouts that a resume does not repeat: the tracker holds the 0-based id of the last one saved."""
    for folder in (traces.parent, traces, launch.save_dir):
        # The launch file may name a folder of another machine, or one that this user may not enter.
        if folder is None or not os.path.isfile(folder / TRACKER):
            continue
        try:
            text = (folder / TRACKER).read_bytes()[:20].decode(errors="replace").strip()
        except OSError:
            continue
        return int(text) + 1 if text.isascii() and text.isdigit() else None
    return None

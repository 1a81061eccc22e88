"""Reads the folder of a run: the way from files to a report."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

from progress.find import find
from progress.judge import Situation, judge
from progress.make_steps import make_evaluations, make_steps, since_last
from progress.read_samples import read_samples
from progress.run_folder import TRACES, find_traces, runs_below
from progress.run_report import RunReport, Verdict
from progress.scan import Report, scan
from progress.settings import ReadSettings
from progress.step import Step
from progress.timeline import Timeline, timeline
from progress.trajectories_ended import AllEnded, all_ended
from progress.words import plural

__all__ = ["ReadSettings", "read_run", "read_samples"]


def read_run(folder: Path, settings: ReadSettings | None = None, report: Report | None = None) -> RunReport:
    """The report of the dumps below `folder`: a traces folder, or a save folder that holds one.

    Never raises for what the files hold: what cannot be read is a finding, a folder without dumps is NO DATA. `report`
    is told how many new files were read, of how many. Raises ReaderMissing where this machine cannot open dumps.
    """
    settings = settings or ReadSettings()
    traces = find_traces(folder)
    if traces is None:
        return _no_run(folder)
    files = scan(traces, settings.cache_dir, report)
    ended = all_ended(list(files.outcomes.values()))
    times = timeline(files, ended)
    steps, evaluations = make_steps(files, ended, times), make_evaluations(files, times)
    now = time.time()
    num_rollout = settings.num_rollout if settings.num_rollout is not None else files.launch.num_rollout
    situation = Situation(
        scan=files,
        steps=steps,
        evaluations=evaluations,
        times=times,
        since=since_last(ended, times),
        evaluated_at=ended.evaluated_at,
        last_outcome=ended.last_time,
        settings=settings,
        num_rollout=num_rollout,
        now=now,
    )
    verdict, reason = judge(situation)
    return RunReport(
        folder=traces,
        read_at=now,
        verdict=verdict,
        reason=reason,
        last_rollout=times.last,
        last_trained=max((step.rollout_id for step in steps if step.trained and not step.leftover), default=None),
        num_rollout=num_rollout,
        steps=steps,
        evaluations=evaluations,
        exit_statuses=_exit_statuses(steps, ended, times),
        findings=find(files, steps, ended, times, now),
    )


def _no_run(folder: Path) -> RunReport:
    below = runs_below(folder)
    if below:
        newest = max(below, key=lambda run: run.stat().st_mtime)
        reason = f"{folder} holds {plural(len(below), 'run')} and is none; name one, the newest is {newest}"
    else:
        reason = _why_none(folder)
    return RunReport(folder, time.time(), Verdict.NO_DATA, reason, None, None, None, (), (), {}, ())


def _why_none(folder: Path) -> str:
    for part in (folder, folder / TRACES):
        try:
            os.listdir(part)
            os.stat(os.path.join(part, "."))
        except FileNotFoundError:
            if part == folder:
                return f"{folder} does not exist"
        except NotADirectoryError:
            return f"{part} is no folder"
        except OSError as error:
            return f"{part} cannot be read: {error.strerror or error}"
    return f"{folder} holds no rollout_data, train_data, outcomes or launch.json, and neither does a traces folder"


def _exit_statuses(steps: tuple[Step, ...], ended: AllEnded, times: Timeline) -> dict[str, int]:
    """Of every step, and of the trajectories that belong to none."""
    counts: Counter[str] = Counter()
    if not (times.copied and ended.loose):
        for step in steps:
            counts.update(step.exit_statuses)
    known = {step.rollout_id for step in steps}
    for rollout_id, one in ended.by_rollout.items():
        if rollout_id not in known:
            counts += one.scored + one.discarded
    assigned = max(times.rollouts.values(), default=0.0) if not times.copied else 0.0
    counts.update(line.status for line in ended.loose if line.time is None or line.time > assigned)
    return dict(counts.most_common())

"""The trajectories that a page holds: chosen, shortened, in plain text, together not larger than a browser likes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from progress.read_samples import SampleReader
from progress.recorded_trajectory import RecordedTrajectory
from progress.run_report import RunReport
from progress.sample_choice import choose_samples, choose_steps
from progress.visible import shortened, visible

SAMPLES: Final = 200
"""Trajectories on a page where nothing else is asked for."""

_PAGE_BYTES: Final = 16 << 20  # of trajectories; a browser opens such a page in a second
_FIRST_MESSAGES, _LAST_MESSAGES = 10, 50
_COMMANDS: Final = 100


@dataclass(frozen=True)
class PageSettings:
    """What of a run goes into its page."""

    samples: int = SAMPLES  # trajectories at most
    rollouts: tuple[int, ...] = ()  # show whole rollouts instead of a choice from all
    trials_dir: Path | None = None  # folders of the trials, for the verifier's output; None: the local engine's


def embedded_samples(report: RunReport, settings: PageSettings) -> tuple[list[dict[str, Any]], str]:
    """The steps with their samples as the page's script reads them, and what is not among them, in words.

    Raises ReaderMissing where this machine cannot open dumps.
    """
    there = {step.rollout_id: step.trajectories for step in report.steps}
    if settings.rollouts:
        chosen = [(rollout, None) for rollout in dict.fromkeys(settings.rollouts)]
    else:
        chosen = choose_steps(report.steps, settings.samples)
    shown: dict[int, dict[str, Any]] = {}
    room, count, unread = _PAGE_BYTES, 0, list[int]()
    with SampleReader(report.folder, settings.trials_dir) as reader:
        for rollout, most in chosen:
            found = reader.read(rollout)
            samples: list[dict[str, Any]] = []
            for trajectory in found if most is None else choose_samples(found, most):
                sample = _sample(trajectory)
                room -= len(json.dumps(sample))
                if room < 0:
                    break
                samples.append(sample)
            if samples:
                shown[rollout] = _step(rollout, samples, len(found))
                count += len(samples)
            if not found:
                unread.append(rollout)
            if room < 0:
                break
    # A trajectory of several samples counts once in a step.
    total = max(count, sum(there.values()))
    said = f"{count:,} of {total:,} trajectories, of {len(shown):,} of {len(there):,} rollouts, are on this page."
    if count < total and not settings.rollouts:
        said += " Chosen: the last rollout, the first, those of highest and lowest reward, and others evenly spaced;"
        said += " of each the highest and lowest reward and every exit status."
    if room < 0:
        said += f" More would make it larger than {_PAGE_BYTES >> 20} MiB."
    if unread:
        said += f" No readable trajectories of rollout {', '.join(map(str, unread[:10]))}."
    if count < total:
        said += " Whole rollouts: --samples ROLLOUT_ID."
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

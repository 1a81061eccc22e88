"""The local engine sampling and training in turns (`run.py`) and side by side (the asynchronous launcher), in one call.

    uv run python benchmarks/local_async.py --num-rollout 10
    uv run python benchmarks/local_async.py --num-rollout 10 --verifier-seconds 5     trials that mostly wait

Both train the same model on the same tasks in the same order with the same number of trajectories and updates, each as
a process of its own, in turn. `steps` is the wall time of all steps, without loading the model; `overlap` is the share
of the training's time in which the sampler computed as well. About 8 minutes on two cores, evaluation left out.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

import tyro
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = {"in turns": "run.py", "side by side": "run-glm47-flash-agentic-async.py"}
LAST = 3  # rollouts whose mean is the reward reached


@dataclass
class Options:
    num_rollout: int = 10
    """Steps of each run."""
    rounds: int = 1
    """Runs of each kind; the tables show medians."""
    verifier_seconds: float = 0.0
    """Added to every verifier, as for tests that take their time."""
    seed: int = 0
    max_weight_staleness: int = 1
    pause_generation_mode: str = "retract"
    arguments: str = ""
    """Further options of both launchers, as one text: --arguments="--families rename,copy"."""
    json: Path | None = None
    """Also write the figures here."""


@dataclass(frozen=True)
class Measured:
    """Of one run; times in seconds."""

    steps: float
    waited: float
    trained: float
    overlap: float
    reward: float
    signal: int
    tokens: int


def main() -> None:
    options = tyro.cli(Options, description=__doc__)
    found: dict[str, list[Measured]] = {kind: [] for kind in SCRIPTS}
    with tempfile.TemporaryDirectory() as folder:
        tasks, rows = make_tasks(Path(folder), options)
        for number in range(options.rounds):
            for kind, script in SCRIPTS.items():
                save_dir = Path(folder, f"{number}-{script}")
                command = [
                    *(sys.executable, script, "--engine", "local", "--save-dir", str(save_dir)),
                    *("--prompt-data", str(rows), "--harbor-tasks-dir", str(tasks), "--seed", str(options.seed)),
                    *("--num-rollout", str(options.num_rollout), "--save-interval", "1000", "--eval-samples", "0"),
                    *shlex.split(options.arguments),
                ]
                if kind == "side by side":
                    command += ["--max-weight-staleness", str(options.max_weight_staleness)]
                    command += ["--pause-generation-mode", options.pause_generation_mode]
                subprocess.run(command, cwd=ROOT, check=True, stdout=sys.stderr)
                found[kind].append(read(save_dir / "metrics.jsonl"))
    medians = {
        kind: {name: median(vars(run)[name] for run in runs) for name in vars(runs[0])} for kind, runs in found.items()
    }
    Console().print(table(medians, options))
    if options.json:
        options.json.write_text(json.dumps(medians, indent=1) + "\n")


def make_tasks(folder: Path, options: Options) -> tuple[Path, Path]:
    """Folder of the easy families' tasks, and their rows."""
    from miles_data.convert import convert
    from miles_data.options import ConvertOptions
    from tasks.families import EASY
    from tasks.folder import write_tasks

    tasks, rows = folder / "tasks", folder / "rows.jsonl"
    write_tasks(tasks, EASY, "train", 32, options.seed)
    if options.verifier_seconds:
        for script in tasks.glob("*/tests/test.sh"):
            first, rest = script.read_text().split("\n", 1)
            script.write_text(f"{first}\nsleep {options.verifier_seconds:g}\n{rest}")
    convert(ConvertOptions(input=str(tasks), output=rows, agent_name="shell"))
    return tasks, rows


def read(metrics: Path) -> Measured:
    steps: list[dict[str, Any]] = [json.loads(line) for line in metrics.read_text().splitlines()]
    seconds = [step["seconds"] for step in steps]
    trained = sum(part["train"] for part in seconds)
    return Measured(
        steps=sum(part["rollout"] + part["train"] + part["other"] for part in seconds),
        waited=sum(part["rollout"] for part in seconds),
        trained=trained,
        overlap=sum(min(part.get("overlap", 0.0), part["train"]) for part in seconds) / trained if trained else 0.0,
        reward=mean(step["reward_mean"] for step in steps[-LAST:]),
        signal=sum(step["groups_with_signal"] for step in steps),
        tokens=sum(step["tokens"] for step in steps),
    )


def table(medians: dict[str, dict[str, float]], options: Options) -> Table:
    shown = Table(title=f"{options.num_rollout} steps, verifiers + {options.verifier_seconds:g} s")
    for name in (
        "",
        "steps s",
        "waited s",
        "trained s",
        "overlap",
        f"reward, last {LAST}",
        "groups with signal",
        "tokens",
    ):
        shown.add_column(name, justify="right", no_wrap=not name)
    for kind, values in medians.items():
        shown.add_row(
            kind,
            *(f"{values[name]:.1f}" for name in ("steps", "waited", "trained")),
            f"{values['overlap']:.0%}",
            f"{values['reward']:.2f}",
            *(f"{values[name]:.0f}" for name in ("signal", "tokens")),
        )
    ratio = medians["in turns"]["steps"] / medians["side by side"]["steps"]
    shown.caption = f"side by side takes 1/{ratio:.2f} of the time"
    return shown


if __name__ == "__main__":
    # As a script this folder would come first on the path, and its files would hide packages of the same name.
    sys.path[0] = str(ROOT)
    main()

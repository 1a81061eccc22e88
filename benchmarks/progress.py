"""Looks at a run of many large dumps, against `torch.load` of every file: what a dashboard of one's own would do.

    python benchmarks/progress.py                                  a minute or two
    python benchmarks/progress.py --steps 2000 --samples 32 --tokens 32768 --folder /large/disk    the real size

The first look is cold: every dump is opened. The second is warm: nothing is new. The third follows one more rollout.
"""

import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import tyro

sys.path.insert(0, str(Path(__file__).parents[1]))

from local_engine.dumps import Dumps
from progress import dump_reader
from progress.read_run import read_run
from trajectory.outcome import Outcome
from trajectory.sample import make_sample

LOAD = "import sys, torch\nfor path in sys.argv[1:]: torch.load(path, weights_only=True, map_location='cpu')"


@dataclass(frozen=True)
class Size:
    """Of the run that is made up."""

    steps: int = 12
    """Rollouts."""
    samples: int = 32
    """Samples of a rollout, in groups of eight."""
    tokens: int = 8192
    """Response tokens of a sample."""
    ranks: int = 2
    """Trainer ranks, which share the samples."""
    folder: Path | None = None
    """Where the dumps are made and removed (default: the system's temporary folder)."""


def main(size: Size) -> int:
    folder = Path(tempfile.mkdtemp(prefix="progress-", dir=size.folder))
    try:
        return measure(size, folder)
    finally:
        shutil.rmtree(folder)


def measure(size: Size, folder: Path) -> int:
    for step in range(size.steps):
        write_step(folder, step, size)
    files = sorted(folder.rglob("*.pt"))
    total = sum(path.stat().st_size for path in files)
    largest = max(path.stat().st_size for path in files)
    print(f"{size.steps} rollouts x {size.samples} samples x {size.tokens:,} tokens: {len(files)} dumps, "
          f"{total / 1e6:,.0f} MB, the largest {largest / 1e6:,.1f} MB")  # fmt: skip
    imports = timed(lambda: subprocess.run([sys.executable, "-c", LOAD], check=True))
    load = timed(lambda: subprocess.run([sys.executable, "-c", LOAD, *map(str, files)], check=True)) - imports
    load_peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    cold = timed(lambda: read_run(folder))
    warm = min(timed(lambda: read_run(folder)) for _ in range(5))
    write_step(folder, size.steps, size)
    one_more = timed(lambda: read_run(folder))
    print("| | s | against torch.load |\n|---|---|---|")
    for name, seconds in (("torch.load of every file", load), ("cold look", cold), ("warm look", warm),
                          ("look with one new rollout", one_more)):  # fmt: skip
        print(f"| {name} | {seconds:.4f} | {load / seconds:,.1f}x |")
    cache = (folder / ".verify_progress.json").stat().st_size
    print(f"peak memory: torch.load {load_peak:,.0f} MB, a look {peak_of_reader():,.0f} MB; cache {cache:,} bytes")
    return 0 if load / warm >= 50 else 1


def peak_of_reader() -> float:
    """MB that the process which opens dumps has held at most."""
    (reader,) = dump_reader._waiting
    status = Path(f"/proc/{reader.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def write_step(folder: Path, step: int, size: Size) -> None:
    random.seed(step)
    dumps = Dumps(folder)
    samples = [
        make_sample(
            group_index=place // 8 + step * size.samples,
            index=place + step * size.samples,
            prompt="Solve the task.",
            metadata={"instance_id": f"task-{place // 8}"},
            tokens=[random.randrange(150_000) for _ in range(size.tokens + 100)],
            response_length=size.tokens,
            response="x" * size.tokens * 3,
            loss_mask=[int(token % 7 > 0) for token in range(size.tokens)],
            rollout_log_probs=[-random.random() for _ in range(size.tokens)],
            weight_versions=["0"],
            truncated=False,
            outcome=Outcome(float(random.random() < 0.5), "Submitted"),
        )
        for place in range(size.samples)
    ]
    dumps.rollout(step, samples, {})
    for rank in range(size.ranks):
        mine = samples[rank :: size.ranks]
        numbers = [torch.zeros(size.tokens) for _ in mine]
        dumps.train(
            step,
            rank,
            {
                "tokens": [torch.tensor(sample["tokens"]) for sample in mine],
                "response_lengths": [size.tokens for _ in mine],
                "raw_reward": [sample["reward"] for sample in mine],
                "log_probs": numbers,
                "advantages": numbers,
            },
        )


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main(tyro.cli(Size)))

"""Seconds from a launcher's command to the first line of its job, against `ray job submit` of the same entry point.

    uv run python benchmarks/launch_overhead.py            5 rounds on a cluster that it starts; about 2 minutes

Both submit the same driver, a stand-in that prints at once, to the same real Ray on this machine, in turn, each as a
process of its own. The parts are taken inside one process: parse (command line to options), plan, preflight (here the
checks of one node, as a Ray job) and submit (until the first line of the log). Left out: training, and a preflight over
several machines. Imports belong to the part that first needs them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from launcher.ray_jobs.cluster import Cluster, cluster

ROOT = Path(__file__).resolve().parents[1]
MILES = ROOT / "tests" / "stubs" / "miles"
LINE = "line 0"
_PARTS = """
import sys, threading, time
began = time.perf_counter()
sys.path.insert(0, {root!r})
import run
resolved = run.LAUNCHER.resolved({argv!r}, {{}})
parsed = time.perf_counter()
from launcher.miles.launch import plan_run
plan, recipe = plan_run(run.PROGRAM, resolved, run.LAUNCHER.recipe, run.LAUNCHER.find_start, {{}})
planned = time.perf_counter()
from launcher.miles.miles_preflight import check_machines, node_spec
spec = node_spec(plan, recipe, resolved.options)
check_machines(plan, spec, 1, {address!r}, {{}}, threading.Event())
checked = time.perf_counter()
from launcher.ray_jobs.cluster import Cluster
from launcher.ray_jobs.job import JobSpec, run_job

class FirstLine:
    at = None
    def write(self, text):
        if self.at is None and {line!r} in text:
            self.at = time.perf_counter()
        return len(text)
    def flush(self):
        pass

out = FirstLine()
job = JobSpec(plan.run_id, (*plan.entrypoint, *plan.arguments), plan.environment, {{}})
run_job(Cluster({address!r}, owned=False), job, wait=True, out=out)
print("PARTS", parsed - began, planned - parsed, checked - planned, out.at - checked)
"""


def arguments(folder: Path, address: str) -> list[str]:
    variables = json.dumps({"STAND_IN_LINES": "1"})
    return [
        *("--num-gpus-per-node", "4", "--miles-path", str(MILES), "--megatron-path", str(MILES)),
        *("--save-dir", str(folder / "saved"), "--ray-address", address, "--skip-prepare"),
        *("--extra-env-vars", variables),
    ]


def first_line_after(command: Sequence[str], environment: Mapping[str, str]) -> float:
    """Seconds until the driver's first line is on the command's standard output; waits for its end."""
    began = time.perf_counter()
    with subprocess.Popen(
        list(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=dict(environment)
    ) as running:
        assert running.stdout is not None
        seconds = None
        lines: list[str] = []
        for line in running.stdout:
            lines.append(line)
            if seconds is None and line.strip() == LINE:
                seconds = time.perf_counter() - began
    if seconds is None:
        raise SystemExit(f"{command[0]} printed no {LINE!r}:\n{''.join(lines[-20:])}")
    return seconds


def parts(folder: Path, address: str, environment: Mapping[str, str]) -> list[float]:
    code = _PARTS.format(root=str(ROOT), argv=arguments(folder, address), address=address, line=LINE)
    done = subprocess.run([sys.executable, "-c", code], env=dict(environment), capture_output=True, text=True)
    for line in done.stdout.splitlines():
        if line.startswith("PARTS "):
            return [float(value) for value in line.split()[1:]]
    raise SystemExit(f"no times:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def measure(ray: Cluster, folder: Path, rounds: int) -> None:
    environment = {**os.environ, "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    ours = [sys.executable, str(ROOT / "run.py"), *arguments(folder, ray.address), "--skip-preflight"]
    runtime = json.dumps({"env_vars": {"STAND_IN_LINES": "1", "PYTHONPATH": str(ROOT)}})
    theirs = [
        *("ray", "job", "submit", "--address", ray.address, "--runtime-env-json", runtime, "--"),
        *("python3", str(MILES / "train.py")),
    ]
    split: list[list[float]] = []
    whole: list[float] = []
    other: list[float] = []
    for number in range(rounds + 1):
        taken = (
            parts(folder, ray.address, environment),
            first_line_after(ours, environment),
            first_line_after(theirs, environment),
        )
        if number:  # the first round compiles and warms up
            split.append(taken[0])
            whole.append(taken[1])
            other.append(taken[2])
    print(f"median of {rounds} rounds, seconds")
    for name, values in zip(("parse", "plan", "preflight", "submit"), zip(*split, strict=True), strict=True):
        print(f"  {name:10} {statistics.median(values):6.2f}")
    mine, ray_job = statistics.median(whole), statistics.median(other)
    print(
        f"command to first line, without preflight: {mine:.2f}; ray job submit: {ray_job:.2f}; "
        f"ratio {mine / ray_job:.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with (
        tempfile.TemporaryDirectory() as folder,
        cluster(None, num_gpus=4, node_ip="127.0.0.1") as ray,
    ):
        measure(ray, Path(folder), rounds)


if __name__ == "__main__":
    main()

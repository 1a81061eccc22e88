"""A launcher reduced to its job, for tests that signal it: launch_process.py ADDRESS|own wait|detach ID RECORD."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from launcher.errors import with_exit_code
from launcher.ray_jobs.cluster import cluster
from launcher.ray_jobs.job import JobSpec, run_job

DRIVER = Path(__file__).parents[2] / "stubs" / "miles" / "train.py"


def main(address: str, mode: str, submission_id: str, record: str, *pairs: str) -> int:
    wait = mode == "wait"
    environment = {"STAND_IN_RECORD": record, **dict(pair.split("=", 1) for pair in pairs)}
    spec = JobSpec(submission_id, (sys.executable, str(DRIVER)), environment, {})
    with cluster(None if address == "own" else address, num_gpus=0, node_ip="127.0.0.1", keep=not wait) as ray:
        print(f"head {ray.pid} at {ray.address}", flush=True)
        return run_job(ray, spec, wait=wait, out=sys.stdout)


if __name__ == "__main__":
    sys.exit(with_exit_code("launch_process.py", lambda: main(*sys.argv[1:])))

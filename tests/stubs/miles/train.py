"""Stand-in for Miles' driver, which needs GPUs: records how it was started and ends as it is told.

STAND_IN_RECORD=file     argv, environment and sys.path as JSON
STAND_IN_LINES=n         prints n numbered lines, STAND_IN_LINE_SLEEP seconds apart (0), STAND_IN_WIDTH characters long
STAND_IN_BYTES=hex       printed as they are
STAND_IN_WORKER=1        a Ray task records its environment and sys.path as well
STAND_IN_CHILD=1         leaves a process behind that moved to a session of its own
STAND_IN_IGNORE_SIGTERM=1
STAND_IN_SLEEP=seconds   before it ends
STAND_IN_EXIT=code       what it ends with (0); `crash`: an unhandled exception
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def main() -> int:
    environment = dict(os.environ)
    record: dict[str, Any] = {
        "file": __file__,
        "pid": os.getpid(),
        "argv": sys.argv[1:],
        "environment": environment,
        "path": sys.path,
    }
    if environment.get("STAND_IN_WORKER") == "1":
        record["worker"] = in_worker()
    if environment.get("STAND_IN_CHILD") == "1":
        record["child"] = subprocess.Popen(["sleep", "600"], start_new_session=True).pid
    if environment.get("STAND_IN_IGNORE_SIGTERM") == "1":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "STAND_IN_RECORD" in environment:
        target = Path(environment["STAND_IN_RECORD"])
        partial = target.with_suffix(".partial")
        partial.write_text(json.dumps(record), encoding="utf-8")
        partial.replace(target)
    sys.stdout.buffer.write(bytes.fromhex(environment.get("STAND_IN_BYTES", "")))
    width = int(environment.get("STAND_IN_WIDTH", "0"))
    for number in range(int(environment.get("STAND_IN_LINES", "0"))):
        print(f"line {number} ".ljust(width, ".") if width else f"line {number}", flush=True)
        time.sleep(float(environment.get("STAND_IN_LINE_SLEEP", "0")))
    time.sleep(float(environment.get("STAND_IN_SLEEP", "0")))
    code = environment.get("STAND_IN_EXIT", "0")
    if code == "crash":
        raise RuntimeError("told to crash")
    return int(code)


def in_worker() -> dict[str, Any]:
    import ray

    def look() -> dict[str, Any]:
        return {"pid": os.getpid(), "environment": dict(os.environ), "path": sys.path}

    ray.init(log_to_driver=False)
    return ray.get(ray.remote(look).remote())


if __name__ == "__main__":
    sys.exit(main())

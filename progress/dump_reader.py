"""Reads dumps in a process of its own, which is started when the first one is to be read and replaced when it dies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, cast

from progress.dump_summary import SampleSummary, TrainSummary
from progress.json_record import NotThisRecord, decode
from progress.recorded_trajectory import RecordedTrajectory

ROOT = Path(__file__).resolve().parents[1]
READY_SECONDS = 300.0  # importing PyTorch from a cold network disk
PATIENCE = 120.0  # seconds for a file, and one more ...
BYTES_A_SECOND = 50_000  # ... for so many bytes: a tenth of what a busy core reads


class ReaderMissing(Exception):
    """Dumps cannot be opened on this machine; the text says what is missing."""


class Unreadable(Exception):
    """One file is not what its name says; the text says why."""


class DumpReader:
    """Use as a context manager. Every method raises Unreadable for the file and ReaderMissing for the machine."""

    def __init__(self, reward_key: str | None = None) -> None:
        self._reward_key = reward_key
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    def samples(self, path: Path, rollout_id: int) -> SampleSummary:
        """Of a rollout or an evaluation dump."""
        return self._record(SampleSummary, self._found("samples", path, rollout_id))

    def training(self, path: Path, rollout_id: int, rank: int) -> TrainSummary:
        return self._record(TrainSummary, self._found("train", path, rollout_id, rank))

    def trajectories(self, path: Path, rollout_id: int) -> list[RecordedTrajectory]:
        found = self._found("trajectories", path, rollout_id)
        return [self._record(RecordedTrajectory, one) for one in cast(list[object], found)]

    def _record[T](self, kind: type[T], value: object) -> T:
        try:
            return decode(kind, value)
        except NotThisRecord as error:
            raise Unreadable(f"it holds what no dump holds ({error})") from None

    def _found(
        self, what: Literal["samples", "train", "trajectories"], path: Path, rollout_id: int, rank: int | None = None
    ) -> object:
        request = {
            "what": what,
            "path": str(path.absolute()),
            "rollout_id": rollout_id,
            "rank": rank,
            "reward_key": self._reward_key,
        }
        process = self._process or self._start()
        try:
            size = path.stat().st_size
        except OSError as error:
            raise Unreadable(error.strerror or str(error)) from None
        reply = self._exchange(process, request, PATIENCE + size / BYTES_A_SECOND)
        if "found" not in reply:
            raise Unreadable(str(reply.get("reason")))
        return reply["found"]

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            [sys.executable, "-m", "progress.dump_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            process_group=0,  # Ctrl-C is for the process that shows the report
        )
        self._process = process
        try:
            hello = self._exchange(process, None, READY_SECONDS)
        except Unreadable as error:
            raise ReaderMissing(f"the process that opens dumps did not start: {error}") from None
        if "ready" not in hello:
            raise ReaderMissing(f"dumps cannot be opened here: {hello.get('missing')}; install torch and numpy")
        return process

    def _exchange(self, process: subprocess.Popen[bytes], request: object, seconds: float) -> dict[str, Any]:
        assert process.stdin is not None and process.stdout is not None
        late = threading.Event()

        def give_up() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(seconds, give_up)
        timer.start()
        try:
            if request is not None:
                process.stdin.write(json.dumps(request).encode() + b"\n")
                process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = b""
        finally:
            timer.cancel()
        if not line.endswith(b"\n"):
            self._end()
            how = f"took more than {seconds:.0f} s" if late.is_set() else f"ended its reader ({process.returncode})"
            raise Unreadable(f"opening it {how}")
        return json.loads(line)

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.communicate()

"""Reads dumps in a process of its own, which is started when the first one is to be read and replaced when it dies.

It lives as long as this process: who follows a run does not import PyTorch for every new dump.
"""

from __future__ import annotations

import atexit
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
from progress.unreadable import Unreadable

ROOT = Path(__file__).resolve().parents[1]
READY_SECONDS = 300.0  # importing PyTorch from a cold network disk
PATIENCE = 120.0  # seconds for a file, and one more ...
BYTES_A_SECOND = 50_000  # ... for so many bytes: a tenth of what a busy core reads


class ReaderMissing(Exception):
    """Dumps cannot be opened on this machine; the text says what is missing."""


class _ReaderDied(Exception):
    """The process ended instead of answering."""


_waiting: list[subprocess.Popen[bytes]] = []


class DumpReader:
    """Use as a context manager. Every method raises Unreadable for the file and ReaderMissing for the machine."""

    def __init__(self, reward_key: str | None = None) -> None:
        self._reward_key = reward_key
        self._process = _waiting.pop() if _waiting else None
        if self._process is not None and self._process.poll() is not None:
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, Unreadable):
            # A request may be under way, whose answer the next one would take for its own.
            self._end()
        elif self._process is not None:
            _waiting.append(self._process)
            self._process = None

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
        try:
            size = path.stat().st_size
        except OSError as error:
            raise Unreadable(error.strerror or str(error), lasting=False) from None
        reply = self._reply(request, PATIENCE + size / BYTES_A_SECOND)
        if "found" not in reply:
            raise Unreadable(str(reply.get("reason")), lasting=reply.get("lasting") is not False)
        return reply["found"]

    def _reply(self, request: object, seconds: float) -> dict[str, Any]:
        try:
            return self._exchange(self._process or self._start(), request, seconds)
        except _ReaderDied:
            pass  # a machine short of memory may have ended the process for another's need
        try:
            return self._exchange(self._start(), request, seconds)
        except _ReaderDied as error:
            raise Unreadable(f"opening it {error}") from None

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
        except _ReaderDied as error:
            raise ReaderMissing(f"the process that opens dumps did not start: it {error}") from None
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
            if late.is_set() and request is not None:
                raise Unreadable(f"opening it took more than {seconds:.0f} s")
            raise _ReaderDied(f"ended its process ({process.returncode})")
        return json.loads(line)

    def _end(self) -> None:
        if self._process is not None:
            _kill(self._process)
            self._process = None


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


@atexit.register
def _kill_waiting() -> None:
    while _waiting:
        _kill(_waiting.pop())

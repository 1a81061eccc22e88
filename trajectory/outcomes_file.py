"""One JSON line per trajectory, discarded ones included: dumps hold trained groups, this holds everything."""

import json
import logging
import math
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from trajectory.outcome import Outcome

logger = logging.getLogger(__name__)

FOLDER = "outcomes"


def outcome_line(
    outcome: Outcome,
    *,
    seconds: float,
    group_index: int | None = None,
    index: int | None = None,
    instance_id: str | None = None,
    rollout_id: int | None = None,
    evaluation: bool = False,
) -> dict[str, Any]:
    """The line of one trajectory. `time` is Unix time in seconds at its end, `seconds` its duration.

    `rollout_id` is left out where nobody knows it (fully asynchronous), `evaluation` where it is false.
    """
    line: dict[str, Any] = {"time": time.time()}
    if rollout_id is not None:
        line["rollout_id"] = rollout_id
    if evaluation:
        line["evaluation"] = True
    line |= {
        "group_index": group_index,
        "index": index,
        "instance_id": instance_id,
        "exit_status": outcome.exit_status,
        "reward": outcome.reward,
        "discard": outcome.discard,
        "seconds": round(seconds, 3),
        "agent_metrics": outcome.agent_metrics,
    }
    if outcome.discard and outcome.eval_report.get("reason"):
        line["reason"] = outcome.eval_report["reason"]
    return line


class OutcomesFile:
    """Appends to `<traces>/outcomes/<host>-<pid>.jsonl`.

    One file per process, so nobody interleaves; one `write` per line, so that a killed process tears at most the
    last one. A disk that is full or read-only costs the lines, never the run: one warning names the file.
    """

    def __init__(self, traces_dir: str | os.PathLike[str]) -> None:
        self._folder = Path(traces_dir) / FOLDER
        self._warned = False

    @property
    def path(self) -> Path:
        """The file of this process; a forked child gets its own."""
        return self._folder / f"{socket.gethostname()}-{os.getpid()}.jsonl"

    def append(self, line: Mapping[str, Any]) -> bool:
        """Write one line; False, after one warning, when it could not be written."""
        text = json.dumps(_plain(line), ensure_ascii=False, allow_nan=False) + "\n"
        try:
            # Half a surrogate pair, which JSON can hold and UTF-8 cannot, becomes its JSON escape.
            self._write(text.encode("utf-8", "backslashreplace"))
        except OSError as error:
            if not self._warned:
                self._warned = True
                logger.warning("outcomes are not written to %s: %s; the run goes on without them", self.path, error)
            return False
        return True

    def _write(self, data: bytes) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            written = os.write(descriptor, data)
            if written < len(data):
                # The torn part must not swallow the next line as well.
                os.write(descriptor, b"\n")
                raise OSError(f"wrote {written} of {len(data)} bytes")
        finally:
            os.close(descriptor)


class OutcomesTail:
    """Follows `<traces>/outcomes/`: what all processes append from now on, each line once.

    A shared folder shows what other machines wrote; a line is taken when it is whole.
    """

    def __init__(self, traces_dir: str | os.PathLike[str]) -> None:
        self._folder = Path(traces_dir) / FOLDER
        self._offsets = {path: path.stat().st_size for path in self._folder.glob("*.jsonl")}

    def read(self) -> list[dict[str, Any]]:
        """The lines that are new since the last call, file by file; a file that cannot be read is left for later."""
        lines: list[dict[str, Any]] = []
        for path in sorted(self._folder.glob("*.jsonl")):
            try:
                with path.open("rb") as file:
                    file.seek(self._offsets.get(path, 0))
                    data = file.read()
            except OSError as error:
                logger.warning("outcomes in %s are not counted yet: %s", path, error)
                continue
            whole = data[: data.rfind(b"\n") + 1]
            self._offsets[path] = self._offsets.get(path, 0) + len(whole)
            lines += _objects(whole)
        return lines


def _objects(data: bytes) -> list[dict[str, Any]]:
    """The JSON objects among the lines of `data`; what a killed process tore is left out."""
    found: list[dict[str, Any]] = []
    for raw in data.splitlines():
        try:
            value = json.loads(raw)
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(cast(dict[str, Any], value))
    return found


def _plain(value: object) -> Any:
    """`value` as strict JSON can hold it: metrics come from elsewhere and may be NaN or of a numeric library."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in cast(Mapping[object, object], value).items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast(list[object], value)]
    return str(value)

"""The files that a Miles run leaves with `--dump-details`, written by the local engine.

`verify_progress.py` and every other reader of such a folder cannot tell the engines apart:

    <traces>/rollout_data/<rollout_id>.pt       {"rollout_id", "metadata", "samples": [dict]}
    <traces>/rollout_data/eval_<rollout_id>.pt  the same, of an evaluation
    <traces>/train_data/<rollout_id>_<rank>.pt  {"rollout_id", "rank", "rollout_data": {name: list over samples}}
    <traces>/trajectory/<rollout_id>.jsonl      one JSON object a line
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from disk.atomic_file import atomic_file, remove_left_over_files
from local_engine.plain_tensors import compact, save_tensors


class DumpNotWritten(Exception):
    """A dump could not be written (disk full, no permission). Training can go on; `path` is missing or as before."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"dump {path} was not written: {reason}; free space there, later dumps are tried again")
        self.path = path
        self.reason = reason


class Dumps:
    """Writes the dump files of one run; a file appears under its name only when it is whole.

    All methods return the path written and raise `DumpNotWritten` when the disk refuses, TypeError for a value that
    `torch.load(weights_only=True)` could not read back, and ValueError for lists of unequal length.
    """

    def __init__(self, traces_dir: Path) -> None:
        self.traces_dir = traces_dir
        for name in ("rollout_data", "train_data", "trajectory"):
            remove_left_over_files(traces_dir / name)

    def rollout(self, rollout_id: int, samples: Sequence[dict[str, Any]], metadata: Mapping[str, Any]) -> Path:
        """`samples` are the trained groups' samples; loss_mask and rollout_log_probs are response_length long."""
        return self._samples(str(rollout_id), rollout_id, samples, metadata)

    def evaluation(
        self, rollout_id: int, samples: Sequence[dict[str, Any]], metadata: Mapping[str, Any] | None = None
    ) -> Path:
        """`rollout_id` is the rollout before which the evaluation took place."""
        return self._samples(f"eval_{rollout_id}", rollout_id, samples, metadata or {})

    def train(self, rollout_id: int, rank: int, data: Mapping[str, list[Any]]) -> Path:
        """`data` maps each name to one entry per sample: what the trainer computed with.

        tokens: int64 [total_length]; loss_masks: int32 [response_length]; rollout_log_probs, log_probs, advantages,
        returns: float32 [response_length]; rewards: group-normalised, raw_reward: as the verifier gave it.
        """
        lengths = {name: len(values) for name, values in data.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"train dump of rollout {rollout_id}: one entry per sample is needed, got {lengths}")
        path = self.traces_dir / "train_data" / f"{rollout_id}_{rank}.pt"
        return _write(path, {"rollout_id": rollout_id, "rank": rank, "rollout_data": dict(data)})

    def trajectory(self, rollout_id: int, lines: Iterable[Mapping[str, Any]]) -> Path:
        """One JSON object a line, in the order of the samples."""
        path = self.traces_dir / "trajectory" / f"{rollout_id}.jsonl"
        text = "".join(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n" for line in lines)
        try:
            with atomic_file(path) as file:
                # A byte-level tokenizer can yield half a surrogate pair; one odd character must not cost the file.
                file.write(text.encode("utf-8", errors="replace"))
        except OSError as error:
            raise DumpNotWritten(path, _reason(error)) from error
        return path

    def _samples(
        self, name: str, rollout_id: int, samples: Sequence[dict[str, Any]], metadata: Mapping[str, Any]
    ) -> Path:
        for position, sample in enumerate(samples):
            _require_lengths(position, sample)
        path = self.traces_dir / "rollout_data" / f"{name}.pt"
        return _write(path, {"rollout_id": rollout_id, "metadata": dict(metadata), "samples": list(samples)})


def _require_lengths(position: int, sample: Mapping[str, Any]) -> None:
    length = sample["response_length"]
    for name in ("loss_mask", "rollout_log_probs"):
        values = sample[name]
        if values is not None and len(values) != length:
            raise ValueError(f"samples[{position}]: {name} has {len(values)} entries, response_length is {length}")


def _write(path: Path, value: dict[str, Any]) -> Path:
    try:
        with atomic_file(path) as file:
            save_tensors(compact(value), file)
    except OSError as error:
        raise DumpNotWritten(path, _reason(error)) from error
    return path


def _reason(error: OSError) -> str:
    return error.strerror or str(error)

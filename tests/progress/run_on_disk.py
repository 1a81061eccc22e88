"""The folder of a run as tests need it: dumps by torch.save, outcomes and launch file, each as old as it is to be."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

MINUTE = 60.0


def sample(index: int, reward: object = 1.0, *, group: int = 0, **changes: Any) -> dict[str, Any]:
    """As a trainer dumps it: four response tokens, three of them the policy's own."""
    return {
        "group_index": group,
        "index": index,
        "prompt": "Rename the file.",
        "tokens": [1, 2, 3, 4, 5, 6],
        "response": "mv a b",
        "response_length": 4,
        "reward": reward,
        "loss_mask": [1, 1, 1, 0],
        "rollout_log_probs": [-0.1, -0.2, -0.3, 0.0],
        "status": "completed",
        "remove_sample": False,
        "metadata": {"instance_id": f"task-{group}", "exit_status": "Submitted", "agent_metrics": {"turns": 2}},
        **changes,
    }


def samples(rewards: Iterable[Sequence[object]]) -> list[dict[str, Any]]:
    """A group of samples for each sequence of rewards."""
    found: list[dict[str, Any]] = []
    for group, of_group in enumerate(rewards):
        for reward in of_group:
            found.append(sample(len(found), reward, group=group))
    return found


SIGNAL = ((0.0, 1.0), (1.0, 1.0))


class RunOnDisk:
    """`traces` below a save folder; ages in seconds before `now`."""

    def __init__(self, save: Path) -> None:
        self.save = save
        self.traces = save / "traces"
        self.now = time.time()
        self.traces.mkdir(parents=True, exist_ok=True)

    def rollout(
        self, rollout_id: int, rewards: Iterable[Sequence[object]] = SIGNAL, *, age: float = 0.0, **changes: Any
    ) -> Path:
        content = {"rollout_id": rollout_id, "metadata": {}, "samples": samples(rewards), **changes}
        return self.file(f"rollout_data/{rollout_id}.pt", content, age=age)

    def evaluation(self, rollout_id: int, rewards: Iterable[Sequence[object]] = SIGNAL, *, age: float = 0.0) -> Path:
        return self.file(
            f"rollout_data/eval_{rollout_id}.pt", {"rollout_id": rollout_id, "samples": samples(rewards)}, age=age
        )

    def train(self, rollout_id: int, ranks: Iterable[int] = (0,), *, age: float = 0.0) -> None:
        for rank in ranks:
            data = {"tokens": [torch.arange(6)] * 2, "response_lengths": [4, 4], "raw_reward": [0.0, 1.0]}
            content = {"rollout_id": rollout_id, "rank": rank, "rollout_data": data | {"truncated": [0, 1]}}
            self.file(f"train_data/{rollout_id}_{rank}.pt", content, age=age)

    def steps(self, count: int, *, every: float = 10 * MINUTE, age: float = 0.0, ranks: Iterable[int] = (0,)) -> None:
        """Rollouts 0 to count - 1, each trained 10 s after it was written; the last one `age` old."""
        for rollout_id in range(count):
            written = age + (count - 1 - rollout_id) * every
            self.rollout(rollout_id, age=written)
            self.train(rollout_id, tuple(ranks), age=max(0.0, written - 10))

    def file(self, name: str, content: object, *, age: float = 0.0) -> Path:
        path = self.traces / name
        path.parent.mkdir(exist_ok=True)
        torch.save(content, path)
        self.set_age(path, age)
        return path

    def raw(self, name: str, data: bytes, *, age: float = 0.0) -> Path:
        path = self.traces / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        self.set_age(path, age)
        return path

    def set_age(self, path: Path, age: float) -> None:
        os.utime(path, (self.now - age, self.now - age))

    def outcomes(self, lines: Iterable[Mapping[str, Any]], file: str = "host-1") -> Path:
        path = self.traces / "outcomes" / f"{file}.jsonl"
        path.parent.mkdir(exist_ok=True)
        with path.open("a") as out:
            out.writelines(json.dumps(line) + "\n" for line in lines)
        return path

    def ended(
        self, rollout_id: int | None, statuses: Mapping[str, int], *, discard: bool, age: float = 0.0, first: int = 0
    ) -> list[dict[str, Any]]:
        """Lines of outcomes, two trajectories a group."""
        names = [name for name, count in statuses.items() for _ in range(count)]
        return [
            {
                "time": self.now - age,
                **({} if rollout_id is None else {"rollout_id": rollout_id}),
                "group_index": (first + place) // 2,
                "index": first + place,
                "exit_status": name,
                "reward": None if discard else 1.0,
                "discard": discard,
                "seconds": 30.0,
                "agent_metrics": {},
            }
            for place, name in enumerate(names)
        ]

    def launch(self, *, num_rollout: int = 25, train_ranks: int = 1, engine: str = "miles", **changes: Any) -> None:
        plan = {
            "launcher": "run.py",
            "engine": engine,
            "arguments": ["--num-rollout", str(num_rollout), *changes.pop("arguments", [])],
            "placement": {"train_ranks": train_ranks},
            "files": {"save": str(self.save)},
            **changes,
        }
        (self.traces / "launch.json").write_text(json.dumps(plan))

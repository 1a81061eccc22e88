"""What a run leaves on disk besides its checkpoints. A full disk costs the file, said loudly, and not the run."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from disk.atomic_file import atomic_file
from local_engine.config import TRAINED_MODEL
from local_engine.dumps import DumpNotWritten, Dumps
from local_engine.plan_rows import shown_path
from local_engine.plot import reward_png
from local_engine.policy import Policy
from local_engine.rollout import RolloutResult
from local_engine.run_state import RunState


class RunFiles:
    """Dumps in `traces_dir`; metrics.jsonl, reward.png and model/ in `save_dir`."""

    def __init__(self, save_dir: Path, traces_dir: Path, warn: Callable[[str], None]) -> None:
        self.save_dir = save_dir
        self.trained_model = save_dir / TRAINED_MODEL
        self.reward_curve = save_dir / "reward.png"
        self._dumps = Dumps(traces_dir)
        self._warn = warn

    def rollout(self, rollout_id: int, result: RolloutResult) -> None:
        """The dumps of what one step trains on."""
        lines = [
            {
                "rollout_id": rollout_id,
                "group_index": s["group_index"],
                "index": s["index"],
                "instance_id": s["metadata"]["instance_id"],
                "reward": s["reward"],
                "exit_status": s["metadata"]["exit_status"],
                "messages": result.messages[s["index"]],
                "eval_report": s["metadata"]["eval_report"],
            }
            for s in result.samples
        ]
        metadata: dict[str, Any] = {"discarded": dict(result.discarded)}
        if result.staleness is not None:
            metadata["staleness"] = result.staleness.as_dict()
        self._try(lambda: self._dumps.rollout(rollout_id, result.samples, metadata))
        self._try(lambda: self._dumps.trajectory(rollout_id, lines))

    def trained(self, rollout_id: int, data: dict[str, list[Any]]) -> None:
        """The dump of what the trainer made of it."""
        self._try(lambda: self._dumps.train(rollout_id, 0, data))

    def evaluation(self, rollout_id: int, result: RolloutResult) -> None:
        self._try(lambda: self._dumps.evaluation(rollout_id, result.samples))

    def metrics(self, state: RunState) -> None:
        """metrics.jsonl and reward.png, each whole at any moment."""
        try:
            with atomic_file(self.save_dir / "metrics.jsonl") as file:
                file.write("".join(json.dumps(m) + "\n" for m in state.metrics).encode())
            if state.metrics:
                steps = [int(m["rollout_id"]) for m in state.metrics]
                rewards = [float(m["reward_mean"]) for m in state.metrics]
                reward_png(self.reward_curve, steps, rewards, state.heldout)
        except OSError as error:
            self._warn(f"metrics in {self.save_dir} were not written: {error.strerror}; the run goes on")

    def model(self, policy: Policy, tokenizer: Any) -> Path:
        """The trained model as an ordinary Hugging Face folder, replaced as a whole. Raises OSError."""
        target = self.trained_model
        building = target.with_name(f"model.tmp-{os.getpid()}")
        shutil.rmtree(building, ignore_errors=True)
        try:
            policy.save_merged(building, tokenizer)
            shutil.rmtree(target, ignore_errors=True)
            building.rename(target)
        except SafetensorError as error:
            raise OSError(str(error)) from error
        finally:
            shutil.rmtree(building, ignore_errors=True)
        return target

    def model_rows(self, policy: Policy, tokenizer: Any) -> tuple[list[tuple[str, str]], bool]:
        """Write the trained model: what became of it as rows for people, and whether it is written."""
        try:
            model = shown_path(self.model(policy, tokenizer))
        except OSError as error:
            stale = f"; {shown_path(self.trained_model)} is older: remove it" if self.trained_model.exists() else ""
            reason = f"not written: {error.strerror or error}{stale}; free space, and --resume writes it"
            return [("trained model", reason)], False
        talk = f"scripts/uv run python -m local_engine.chat {model}"
        return [("trained model", str(model)), ("talk to it", talk)], True

    def _try(self, write: Callable[[], object]) -> None:
        try:
            write()
        except DumpNotWritten as error:
            self._warn(str(error))

"""The prompts of a run: made from `tasks/` or read from a Miles JSONL file, in a shuffled order that can be resumed."""

import random
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from local_engine.checkpoint import DataPosition
from local_engine.config import LocalRunConfig
from miles_data.convert import convert
from miles_data.findings import DataError
from miles_data.options import ConvertOptions
from miles_data.prompts import HELDOUT_SPLIT, Prompt, load_prompts
from tasks.folder import choose_tasks, write_tasks


@dataclass(frozen=True)
class RunData:
    """Training prompts, held-out prompts (may be empty) and the folder of their Harbor tasks."""

    train: list[Prompt]
    heldout: list[Prompt]
    tasks_dir: Path | None

    @property
    def place(self) -> str:
        """Where the tasks are, for people."""
        return str(self.tasks_dir) if self.tasks_dir else "the agent server's folder"


def prepare_data(config: LocalRunConfig) -> RunData:
    """Make or read the data. Rows of the split "test" are held out.

    Raises DataError, TaskFolderError, and DataError when a row names a task that has no folder.
    """
    if config.prompt_data is None:
        return _made(config)
    prompts = load_prompts(config.prompt_data)
    train = [p for p in prompts if not p.held_out]
    heldout = [p for p in prompts if p.held_out]
    folder = config.harbor_tasks_dir  # None: another machine's agent server has the tasks
    missing = [p for p in prompts if folder and not (folder / p.instance_id / "task.toml").is_file()]
    if missing:
        shown = ", ".join(f"{p.instance_id} (line {p.line})" for p in missing[:20])
        raise DataError(
            f"{len(missing)} of {len(prompts)} prompts of {config.prompt_data} have no task folder in "
            f"{folder}: {shown}; name the right folder with --harbor-tasks-dir"
        )
    if len(train) < config.rollout_batch_size:
        raise DataError(
            f"{config.prompt_data} has {len(train)} training prompts, a rollout takes {config.rollout_batch_size}; "
            f"pass --rollout-batch-size {max(1, len(train))} or more prompts"
        )
    return RunData(train, heldout, folder)


def made_train_ids(config: LocalRunConfig) -> list[str]:
    """Instance ids of the training tasks that `prepare_data` makes, in the order of its prompts; nothing is written."""
    chosen = choose_tasks(config.families, "train", config.train_tasks_per_family, config.seed)
    return sorted(instance.instance_id for instance in chosen)


def _made(config: LocalRunConfig) -> RunData:
    tasks_dir = config.save_dir / "tasks"
    counts: dict[Literal["train", "test"], int] = {
        "train": config.train_tasks_per_family,
        HELDOUT_SPLIT: config.heldout_tasks_per_family,
    }
    prompts: dict[str, list[Prompt]] = {"train": [], HELDOUT_SPLIT: []}
    for split, count in counts.items():
        if not count:
            continue
        made = write_tasks(tasks_dir, config.families, split, count, config.seed, partial_credit=config.partial_credit)
        output = config.save_dir / "data" / f"{split}.jsonl"
        output.parent.mkdir(parents=True, exist_ok=True)
        # A run with other options, stopped before its first checkpoint, may have left its own tasks in the folder.
        with tempfile.TemporaryDirectory() as chosen:
            for name in made:
                Path(chosen, name).symlink_to((tasks_dir / name).absolute())
            convert(ConvertOptions(input=chosen, output=output, split=split, agent_name=config.agent_name))
        prompts[split] = load_prompts(output)
    return RunData(prompts["train"], prompts[HELDOUT_SPLIT], tasks_dir)


class PromptStream:
    """Prompts without end: every epoch is another shuffle, fixed by the seed and the epoch."""

    def __init__(self, prompts: list[Prompt], seed: int, position: DataPosition | None = None) -> None:
        self._prompts = prompts
        self.position = position or DataPosition(epoch=0, offset=0, order_seed=seed)
        self._order: list[int] = []
        self._shuffled: int | None = None

    def take(self) -> Prompt:
        """The next prompt."""
        position = self._inside(self.position)
        self.position = replace(position, offset=position.offset + 1)
        return self.at(position)

    def at(self, position: DataPosition) -> Prompt:
        """The prompt that `take` answers at that position; the stream stays where it is."""
        position = self._inside(position)
        if self._shuffled != position.epoch:
            self._order = list(range(len(self._prompts)))
            random.Random(f"{position.order_seed}/{position.epoch}").shuffle(self._order)
            self._shuffled = position.epoch
        return self._prompts[self._order[position.offset]]

    def _inside(self, position: DataPosition) -> DataPosition:
        if position.offset < len(self._prompts):
            return position
        return replace(position, epoch=position.epoch + 1, offset=0)

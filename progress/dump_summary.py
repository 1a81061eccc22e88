"""What is kept of a dump once it was read: a few numbers, whatever its size."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from progress.step import SOLVED
from trajectory.metrics import flat_samples, sample_metadata
from trajectory.outcome import finite_number

CUT_OFF, EMPTY = "it is cut off", "it is empty"  # how reasons begin that pass when the writer goes on
EXAMPLES = 5  # samples that are named of each oddity
_STATUS_LENGTH = 80
_LARGEST_SHOWN = 2**64  # Python refuses to write integers of thousands of digits


class NotADump(Exception):
    """The file opens and holds something else; the text says what."""


@dataclass(frozen=True)
class Oddity:
    """Samples of a dump that share something wrong: how many, and the first few in words."""

    count: int = 0
    examples: tuple[str, ...] = ()

    def and_of(self, text: str) -> Oddity:
        return Oddity(self.count + 1, (*self.examples, text)[:EXAMPLES])


@dataclass(frozen=True)
class SampleSummary:
    """A rollout or evaluation dump. Rewards are those of trajectories that were not aborted and have a finite one."""

    rollout_id: int
    trajectories: int
    samples: int
    scored: int
    reward_mean: float | None
    reward_std: float | None
    solved: int
    groups: int
    groups_with_signal: int
    truncated: int
    tokens: int  # response tokens of all trajectories
    turns: float  # of all trajectories that report them ...
    turns_reported: int  # ... and how many do
    statuses: dict[str, int]  # exit statuses of what was not aborted; the sample's status where there is none
    aborted: dict[str, int]
    lost: dict[str, int]  # discarded before the dump was written, as its metadata says
    no_reward: Oddity = field(default_factory=Oddity)
    no_trainable_token: Oddity = field(default_factory=Oddity)
    mask_length: Oddity = field(default_factory=Oddity)
    reward_on_aborted: Oddity = field(default_factory=Oddity)


@dataclass(frozen=True)
class TrainSummary:
    """One rank's train dump; sums over its samples, for a step of which only such dumps are left."""

    rollout_id: int
    rank: int
    samples: int
    rewards: int  # samples with a finite raw reward
    reward_sum: float
    reward_squares: float
    solved: int
    truncated: int
    tokens: int


def summarise_samples(content: object, rollout_id: int, reward_key: str | None = None) -> SampleSummary:
    """Of the content of `<id>.pt` or `eval_<id>.pt`. Raises NotADump.

    `reward_key` picks the number out of rewards that are dicts (Miles' --reward-key).
    """
    dump = _of_rollout(content, rollout_id)
    samples = dump.get("samples")
    if not isinstance(samples, list):
        raise NotADump("it holds no list of samples")
    flat = flat_samples(cast(list[Any], samples))
    odd = next((sample for sample in flat if not isinstance(sample, dict)), None)
    if odd is not None:
        raise NotADump(f"a sample is a {type(odd).__name__}, not a dict")
    return _Tally(cast(list[dict[str, Any]], flat), reward_key).summary(rollout_id, _lost(dump))


def summarise_training(content: object, rollout_id: int, rank: int) -> TrainSummary:
    """Of the content of `<id>_<rank>.pt`. Raises NotADump."""
    dump = _of_rollout(content, rollout_id)
    if dump.get("rank", rank) != rank:
        raise NotADump(f"it holds rank {_short(dump['rank'])}, its name says {rank}")
    data = dump.get("rollout_data")
    if not isinstance(data, dict):
        raise NotADump("it holds no rollout_data")
    columns = cast(dict[str, object], data)
    rewards = [number for value in _numbers(columns.get("raw_reward")) if (number := finite_number(value)) is not None]
    return TrainSummary(
        rollout_id=rollout_id,
        rank=rank,
        samples=len(_numbers(columns.get("response_lengths"))),
        rewards=len(rewards),
        reward_sum=_finite(sum(rewards)),
        reward_squares=_finite(sum(reward * reward for reward in rewards)),
        solved=sum(reward >= SOLVED for reward in rewards),
        truncated=sum(value == 1 for value in _numbers(columns.get("truncated"))),
        tokens=_count(sum(map(_count, _numbers(columns.get("response_lengths"))))),
    )


def reward_of(sample: Mapping[str, Any], reward_key: str | None) -> float | None:
    """A finite reward: the number itself, or that of a dict; None where there is none."""
    reward: object = sample.get("reward")
    if isinstance(reward, dict):
        by_name = cast(dict[str, object], reward)
        names = [name for name in (reward_key, "reward", "score") if name in by_name]
        reward = by_name[names[0]] if names else next(iter(by_name.values())) if len(by_name) == 1 else None
    return finite_number(plain_number(reward))


def plain_number(value: object) -> object:
    """A number of a numeric library as Python's own; everything else as it is."""
    if isinstance(value, bool | int | float | str | None):
        return value
    # A tensor may claim any shape: one element is a number, more are none.
    item, size = getattr(value, "item", None), getattr(value, "numel", None)
    if item is None or (size() if callable(size) else getattr(value, "size", 0)) != 1:
        return value
    return item()


class _Tally:
    def __init__(self, samples: Sequence[dict[str, Any]], reward_key: str | None) -> None:
        self._samples = samples
        self._reward_key = reward_key
        self._odd = {name: Oddity() for name in ("no_reward", "no_trainable_token", "mask_length", "reward_on_aborted")}

    def summary(self, rollout_id: int, lost: dict[str, int]) -> SampleSummary:
        for position, sample in enumerate(self._samples):
            self._inspect(position, sample)
        statuses: Counter[str] = Counter()
        aborted: Counter[str] = Counter()
        groups: dict[object, list[float]] = {}
        truncated, turns, reporting = 0, 0.0, 0
        trajectories = self._trajectories()
        for group, parts in trajectories:
            rewards = groups.setdefault(group, [])
            is_aborted = any(part.get("status") == "aborted" for part in parts)
            truncated += any(part.get("status") == "truncated" for part in parts)
            (aborted if is_aborted else statuses)[exit_status(parts[0])] += 1
            known = turns_of(parts[0])
            if known is not None:
                turns, reporting = turns + known, reporting + 1
            reward = next((r for part in parts if (r := reward_of(part, self._reward_key)) is not None), None)
            if reward is not None and not is_aborted:
                rewards.append(reward)
        scored = [reward for rewards in groups.values() for reward in rewards]
        mean, std = _mean_and_std(scored)
        return SampleSummary(
            rollout_id=rollout_id,
            trajectories=len(trajectories),
            samples=len(self._samples),
            scored=len(scored),
            reward_mean=mean,
            reward_std=std,
            solved=sum(reward >= SOLVED for reward in scored),
            groups=len(groups),
            groups_with_signal=sum(len(set(rewards)) > 1 for rewards in groups.values()),
            truncated=truncated,
            tokens=_count(sum(_count(sample.get("response_length")) for sample in self._samples)),
            turns=turns,
            turns_reported=reporting,
            statuses=dict(statuses),
            aborted=dict(aborted),
            lost=lost,
            **self._odd,
        )

    def _trajectories(self) -> list[tuple[object, list[dict[str, Any]]]]:
        """Group and samples of each trajectory: those that share group and index. Without an index each is its own."""
        by_key: dict[tuple[object, object], tuple[object, list[dict[str, Any]]]] = {}
        for position, sample in enumerate(self._samples):
            group, index = _key(sample.get("group_index")), _key(sample.get("index"))
            key = (group, index) if index is not None else ("position", position)
            by_key.setdefault(key, (group, []))[1].append(sample)
        return list(by_key.values())

    def _inspect(self, position: int, sample: Mapping[str, Any]) -> None:
        index = _key(sample.get("index"))
        name = f"sample {position if index is None else index}"
        if sample.get("status") == "aborted":
            if sample.get("reward") is not None:
                self._add("reward_on_aborted", f"{name} has reward {_short(plain_number(sample.get('reward')))}")
            return
        if reward_of(sample, self._reward_key) is None:
            self._add("no_reward", f"{name} has reward {_short(plain_number(sample.get('reward')))}")
        length = _count(sample.get("response_length"))
        mask = _Row(sample.get("loss_mask"))
        log_probs = _Row(sample.get("rollout_log_probs"))
        for row, what in ((mask, "mask entries"), (log_probs, "log-probabilities")):
            if row.length not in (None, length):
                self._add("mask_length", f"{name} has {row.length} {what} for {length} response tokens")
                break
        # Without a mask every response token is trained on; a removed sample was left out on purpose.
        trainable = length > 0 if mask.length is None else mask.any
        if not trainable and sample.get("remove_sample") is not True:
            self._add("no_trainable_token", f"{name} of {length} response tokens")

    def _add(self, oddity: str, text: str) -> None:
        self._odd[oddity] = self._odd[oddity].and_of(text)


class _Row:
    """Length of a list or one-dimensional array, and whether anything in it is not 0; None where there is no row."""

    def __init__(self, value: object) -> None:
        self._value: Any = value
        self.length: int | None = None
        if type(value) in (list, tuple):
            self.length = len(cast("list[object]", value))
        elif (shape := getattr(value, "shape", None)) is not None:
            self.length = int(shape[0]) if len(shape) else 0

    @property
    def any(self) -> bool:
        return any(cast("list[object]", self._value)) if type(self._value) in (list, tuple) else bool(self._value.any())


def exit_status(sample: Mapping[str, Any]) -> str:
    """As the agent reported it, else the sample's status."""
    known = sample_metadata(sample).get("exit_status") or sample.get("status")
    return status_name(known) if isinstance(known, str) else "unknown"


def status_name(text: str) -> str:
    """Short, and without halves of surrogate pairs, which JSON on disk cannot hold."""
    return text[:_STATUS_LENGTH].encode(errors="replace").decode()


def turns_of(sample: Mapping[str, Any]) -> float | None:
    """As the agent reported them: among its metrics, or in the metadata itself."""
    metadata = sample_metadata(sample)
    metrics: object = metadata.get("agent_metrics")
    if isinstance(metrics, dict) and "turns" in metrics:
        return finite_number(plain_number(cast(dict[str, object], metrics)["turns"]))
    return finite_number(plain_number(metadata.get("turns")))


def _of_rollout(content: object, rollout_id: int) -> dict[str, object]:
    if not isinstance(content, dict):
        raise NotADump(f"it holds a {type(content).__name__}, not a dump")
    dump = cast(dict[str, object], content)
    held = plain_number(dump.get("rollout_id", rollout_id))
    if held != rollout_id:
        raise NotADump(f"it holds rollout {_short(held)}, its name says {rollout_id}")
    return dump


def _lost(dump: Mapping[str, object]) -> dict[str, int]:
    metadata = dump.get("metadata")
    counts: object = cast(dict[str, object], metadata).get("discarded") if isinstance(metadata, dict) else None
    if not isinstance(counts, dict):
        return {}
    return {
        status_name(str(name)): count
        for name, value in cast(dict[object, object], counts).items()
        if (count := _count(value))
    }


def _numbers(value: object) -> list[object]:
    return [plain_number(item) for item in cast(list[object], value)] if isinstance(value, list) else []


def _count(value: object) -> int:
    number = plain_number(value)
    return min(number, 2**62) if isinstance(number, int) and not isinstance(number, bool) and number > 0 else 0


def _key(value: object) -> int | str | None:
    plain = plain_number(value)
    return plain if isinstance(plain, int | str) else None


def _mean_and_std(values: Sequence[float]) -> tuple[float | None, float | None]:
    if not values:
        return None, None
    mean = sum(values) / len(values)
    deviation = math.sqrt(sum((value - mean) * (value - mean) for value in values) / len(values))
    # Rewards of 1e300 are finite, what is computed of them is not.
    return (mean if math.isfinite(mean) else None), (deviation if math.isfinite(deviation) else None)


def _finite(value: float) -> float:
    return value if math.isfinite(value) else 0.0


def _short(value: object) -> str:
    if isinstance(value, int) and abs(value) > _LARGEST_SHOWN:
        return "a number beyond 64 bits"
    return repr(value)[:40] if isinstance(value, int | float | str | None) else f"a {type(value).__name__}"

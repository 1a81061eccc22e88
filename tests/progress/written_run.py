"""Runs on disk for the pictures and pages: real dumps of the local engine's writer, with texts of a hostile model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from local_engine.dumps import Dumps
from trajectory.outcome import Outcome
from trajectory.outcomes_file import OutcomesFile, outcome_line
from trajectory.sample import make_sample

SCRIPT = "</script><script>window.planted = 1</script><img src=x onerror='window.planted = 2'></pre>"
CONTROL = "\x1b[31mred\x1b[0m \u2028 \u202e \x00 \ud800"
SEEN_CONTROL = "\\x1b[31mred\\x1b[0m \\u2028 \\u202e \\x00"


def reward_of_place(rollout: int, place: int) -> float:
    """Rises with the rollouts: more of the places earn 1."""
    return float(place % 8 <= rollout % 8)


def write_run(
    save: Path,
    rollouts: list[int],
    *,
    groups: int = 2,
    size: int = 4,
    reward: Callable[[int, int], float] = reward_of_place,
    said: str = SCRIPT,
    output: str = "done",
) -> Path:
    """Dumps, outcomes and trial folders of `rollouts` in the save folder `save`; answers the traces folder."""
    traces = save / "traces"
    dumps, outcomes = Dumps(traces), OutcomesFile(traces)
    for rollout in rollouts:
        samples = [
            _sample(rollout, place, place // size + rollout * groups, reward(rollout, place), said)
            for place in range(groups * size)
        ]
        dumps.rollout(rollout, samples, {})
        dumps.trajectory(rollout, [_line(rollout, sample, said, output) for sample in samples])
        dumps.train(rollout, 0, {"raw_reward": [sample["reward"] for sample in samples]})
        for sample in samples:
            _write_trial(save / "agent_server" / "trials" / sample["metadata"]["eval_report"]["trial"], said)
            outcomes.append(
                outcome_line(
                    Outcome(sample["reward"], sample["metadata"]["exit_status"]),
                    seconds=1.5,
                    group_index=sample["group_index"],
                    index=sample["index"],
                    instance_id=sample["metadata"]["instance_id"],
                    rollout_id=rollout,
                )
            )
    return traces


def _sample(rollout: int, place: int, group: int, reward: float, said: str) -> dict[str, Any]:
    outcome = Outcome(reward, "Submitted", eval_report={"trial": f"trial-{rollout}-{place}"})
    return make_sample(
        group_index=group,
        index=rollout * 1000 + place,
        prompt="Rename the file.",
        metadata={"instance_id": f"task-{place}"},
        tokens=[1, 2, 3, 4, 5],
        response_length=3,
        response=f"answer {said}",
        loss_mask=[1, 1, 0],
        rollout_log_probs=[-0.1, -0.2, 0.0],
        weight_versions=["0"],
        truncated=False,
        outcome=outcome,
    )


def _line(rollout: int, sample: dict[str, Any], said: str, output: str) -> dict[str, Any]:
    return {
        "rollout_id": rollout,
        "group_index": sample["group_index"],
        "index": sample["index"],
        "instance_id": sample["metadata"]["instance_id"],
        "reward": sample["reward"],
        "exit_status": sample["metadata"]["exit_status"],
        "messages": [
            {"role": "user", "content": "Rename the file."},
            {"role": "assistant", "content": f"Now {said}\n```bash\nmv a '{said}'\n```"},
            {"role": "user", "content": f"Exit code 0. Output:\n{output}"},
        ],
        "eval_report": sample["metadata"]["eval_report"],
    }


def _write_trial(folder: Path, said: str) -> None:
    (folder / "verifier").mkdir(parents=True)
    text = f"the verifier says {said}".encode(errors="surrogatepass")
    (folder / "verifier" / "test-stdout.txt").write_bytes(text)

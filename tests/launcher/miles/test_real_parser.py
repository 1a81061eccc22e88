"""The parser of the Miles that is installed, where one is, takes the plan of the run on a real GPU."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu.checkpoint import main as make_checkpoint
from launcher.scripts import ROOT
from tasks.folder import write_tasks

GPU = ROOT / "benchmarks" / "gpu"
PARSE = """
import json, sys
from miles.utils.arguments import parse_args
args = parse_args()
print("parsed", json.dumps({name: getattr(args, name) for name in sys.argv[0].split(",")}))
"""
WANTED = {
    "num_rollout": 2,
    "spec": ["local_spec", "get_spec"],
    "rollout_function_path": "generate.RolloutFn",
    "custom_agent_function_path": "swe_agent_function.run",
    "max_seq_len": 2048,
    "offload_train": False,
    "use_session_server": True,
}


@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("miles") is None, reason="no Miles is installed here")
def test_the_installed_miles_takes_the_plan_of_the_gpu_run(tmp_path: Path) -> None:
    spec = importlib.util.find_spec("miles")
    assert spec is not None and spec.origin is not None
    packages = Path(spec.origin).parents[1]
    write_tasks(tmp_path / "tasks", ("mkdir", "rename"), "train", 2, 0)
    untrained = ("--steps", "0", "--device", "cpu")
    make_checkpoint(["--tasks", str(tmp_path / "tasks"), "--out", str(tmp_path / "tiny"), *untrained])
    (tmp_path / "reference").mkdir()
    (tmp_path / "reference" / "latest_checkpointed_iteration.txt").write_text("release")
    names = ("no_transformer_engine.json", "no_offloaded_optimizer.json", "no_offload.json")
    changes = [str(GPU / name) for name in names]
    planned = subprocess.run(
        [
            *(sys.executable, str(ROOT / "run.py"), "--dry-run", "--format", "json", "--num-gpus-per-node", "1"),
            *("--miles-path", str(packages), "--megatron-path", str(packages), "--skip-prepare"),
            *("--model-shape", str(GPU / "model_shape.json"), "--argument-changes", *changes),
            *("--hf-checkpoint", str(tmp_path / "tiny"), "--ref-load", str(tmp_path / "reference")),
            *("--prompt-data", str(tmp_path / "prompts.jsonl"), "--save-dir", str(tmp_path / "save")),
            *("--num-rollout", "2", "--max-seq-len", "2048", "--rollout-max-response-len", "64"),
            *("--extra-env-vars", f"PYTHONPATH={GPU}"),
        ],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    plan = json.loads(planned.stdout)
    parsed = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.argv[0] = {','.join(WANTED)!r}\n{PARSE}", *plan["arguments"]],
        env={**os.environ, **plan["environment"]}, capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert parsed.returncode == 0, parsed.stdout[-2000:] + parsed.stderr[-4000:]
    (line,) = [line for line in parsed.stdout.splitlines() if line.startswith("parsed ")]
    assert json.loads(line.removeprefix("parsed ")) == WANTED

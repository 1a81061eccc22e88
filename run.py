"""Trains GLM-4.7-Flash with synchronous GRPO on one node of 8 GPUs, or rehearses it on this machine.

    python run.py --engine local                  a small model on the CPU, real tasks, real trials, minutes
    python run.py --dry-run --format json ...     print what would run

Steps: parse, resolve, check the rules, plan, preflight, run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from launcher import local
from launcher.cli import parse
from launcher.engines import LOCAL, MILES_ENVIRONMENT, SHARED_DEFAULTS, EngineRules
from launcher.errors import OptionsError, with_exit_code
from launcher.options import CommonOptions
from launcher.resolve import resolve
from launcher.rules import validate

PROGRAM = "run.py"


@dataclass(frozen=True)
class FlashFiles:
    """GLM-4.7-Flash."""

    base_dir: Annotated[str | None, "folder of models and data in the Miles container"]
    model_name: Annotated[str | None, "model below --base-dir"]
    ref_load: Annotated[str | None, "reference checkpoint in torch_dist form"]
    skip_prepare: Annotated[bool, "do not convert the checkpoint"]


@dataclass(frozen=True)
class Options(CommonOptions):
    """The options of this launcher."""

    flash: FlashFiles | None


MILES = EngineRules(
    name="miles",
    defaults={
        **SHARED_DEFAULTS,
        "num_nodes": 1,
        "num_gpus_per_node": 8,
        "skip_prepare": False,
        "base_dir": "/root",
        "model_name": "GLM-4.7-Flash",
        "megatron_path": "/root/Megatron-LM",
        "miles_path": "/root/miles",
        "hf_checkpoint": "zai-org/GLM-4.7-Flash",
        "ref_load": "/root/GLM-4.7-Flash_torch_dist",
        "save_dir": "/root/GLM-4.7-Flash_agent_v2",
        "save_traces_dir": None,
        "prompt_data": "/root/swe_train.jsonl",
        "max_seq_len": 65536,
        "rollout_max_response_len": 8192,
        "num_rollout": 3000,
        "save_interval": 100,
        "rollout_batch_size": 4,
        "n_samples_per_prompt": 8,
        "global_batch_size": 32,
        "lr": 1e-6,
        "agent_server_url": "http://agent_env:11000",
        "harbor_tasks_dir": "/root/harbor_tasks",
        "wandb_project": "my-wandb-project",
        "wandb_run_name": "glm47-flash-swe-tito",
        "use_prometheus": True,
        "prometheus_port": 9090,
        "prometheus_run_name": "glm47-flash-swe-tito",
    },
    environment=MILES_ENVIRONMENT,
    refused={},
    shown={},
)

ENGINES: Mapping[str, EngineRules] = {"miles": MILES, "local": LOCAL}


def run(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    given = parse(PROGRAM, __doc__ or "", Options, tuple(ENGINES.values()), argv)
    resolved = resolve(Options, given, ENGINES, environment)
    validate(resolved.options)
    if resolved.options.job.engine == "miles":
        raise OptionsError(
            "the Miles engine of this launcher is not in this version; "
            "--engine local rehearses the same path on this machine"
        )
    return local.launch(PROGRAM, resolved, environment)


def main() -> int:
    return with_exit_code(PROGRAM, lambda: run(sys.argv[1:], os.environ))


if __name__ == "__main__":
    sys.exit(main())

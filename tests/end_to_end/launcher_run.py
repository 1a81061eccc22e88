"""A launcher as a process of its own, with all that it looks for in a temporary folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher.checks.references import write_marker
from launcher.model_shape import GLM_4_7_FLASH
from launcher.scripts import ROOT
from tests.launcher.checks.nvidia_smi_stand_in import table, write_nvidia_smi
from tests.launcher.miles.launchers import SCRIPTS

MILES = ROOT / "tests" / "stubs" / "miles"
BIN = str(Path(sys.executable).parent)


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Ground:
    """Checkpoint, reference, prompts and a place to save; `gpus` GPUs by a stand-in for nvidia-smi."""

    folder: Path
    agent_server: str
    gpus: int

    @property
    def record(self) -> Path:
        return self.folder / "record.json"

    @property
    def save_dir(self) -> Path:
        return self.folder / "saved"

    def argv(self, script: str, *flags: str) -> list[str]:
        return [
            *(sys.executable, str(ROOT / SCRIPTS[script])),
            *("--num-gpus-per-node", str(self.gpus), "--miles-path", str(MILES), "--megatron-path", str(MILES)),
            *("--hf-checkpoint", str(self.folder / "model"), "--prompt-data", str(self.folder / "rows.jsonl")),
            *("--save-dir", str(self.save_dir), "--agent-server-url", self.agent_server),
            *(() if script == "lora" else ("--ref-load", str(self.folder / "reference"))),
            *("--rollout-batch-size", "2", "--n-samples-per-prompt", "4", "--global-batch-size", "8"),
            *flags,
        ]

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Where the stand-in driver records, and this interpreter first on PATH, as in an activated environment."""
        hidden = ("PYTHONDONTWRITEBYTECODE", "RAY_ADDRESS", "WANDB_API_KEY")
        kept = {name: value for name, value in os.environ.items() if name not in hidden}
        path = os.pathsep.join((str(self.folder / "bin"), BIN, kept["PATH"]))
        return {**kept, "PATH": path, "NCCL_NVLS_ENABLE": "0", **variables}

    def job_variables(self, **variables: str) -> list[str]:
        job = {"STAND_IN_RECORD": str(self.record), **variables}
        return ["--extra-env-vars", json.dumps(job)]

    def run(self, script: str, *flags: str, variables: Mapping[str, str] | None = None) -> Ended:
        done = subprocess.run(
            self.argv(script, *flags),
            env=self.environment(variables or {}),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def recorded(self) -> dict[str, Any]:
        return json.loads(self.record.read_text())

    def launch_file(self) -> dict[str, Any]:
        (path,) = (self.save_dir / "launch").glob("*.json")
        return json.loads(path.read_text())


def make_ground(folder: Path, agent_server: str, gpus: int, instance_ids: tuple[str, ...]) -> Ground:
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "config.json").write_text(json.dumps(GLM_4_7_FLASH.hf_fields))
    (folder / "model" / "model.safetensors").write_bytes(b"x")
    rows = [{"prompt": "p", "metadata": {"instance_id": name, "agent_name": "shell"}} for name in instance_ids]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_nvidia_smi(folder / "bin", table(gpus))
    return Ground(folder, agent_server, gpus)


def write_reference(folder: Path, fields: Mapping[str, object] = GLM_4_7_FLASH.hf_fields) -> None:
    (folder / "release").mkdir(parents=True)
    for name in ("metadata.json", "common.pt", "__0_0.distcp"):
        (folder / "release" / name).write_bytes(b"x")
    (folder / "latest_checkpointed_iteration.txt").write_text("release")
    write_marker(folder, "somewhere", fields)

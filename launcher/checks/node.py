"""Everything that is checked on a machine of the run: on this one, or on each node of a Ray cluster."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from launcher.checks.agent_server import bearer
from launcher.checks.checkpoints import check_checkpoint
from launcher.checks.folders import check_disk, check_offload, check_paths, check_repository, check_writable
from launcher.checks.gpus import check_gpus
from launcher.checks.key_files import check_key_file
from launcher.checks.packages import check_packages
from launcher.checks.ports import check_ports
from launcher.checks.references import check_reference
from launcher.checks.save_dir import NAME as SAVE_DIR
from launcher.checks.save_dir import check_save_dir
from launcher.checks.wandb import check_wandb_key
from launcher.checks.way_back import NAME as WAY_BACK
from launcher.checks.way_back import check_way_back
from launcher.preflight import LIMIT, Check, Finding, Status, run_checks, warning

_LIMIT = LIMIT - 5  # seconds: whoever checks a machine as one check of its own still gets the findings


@dataclass(frozen=True)
class CheckpointSpec:
    """Folder or hub id that `option` names, and the fields its config.json must have."""

    option: str
    checkpoint: str
    model: str
    expected: Mapping[str, object]


@dataclass(frozen=True)
class ReferenceSpec:
    """The torch_dist folder; `will_prepare` where this launcher converts what is missing."""

    folder: str
    will_prepare: bool
    model: str
    expected: Mapping[str, object]


@dataclass(frozen=True)
class WayBackSpec:
    """Session ports, both ends included; without an external host each node's own address is tried."""

    first_port: int
    last_port: int
    bind_host: str
    external_host: str | None
    agent_server_url: str
    token_file: str | None  # the path; the token itself is read on the node


@dataclass(frozen=True)
class NodeSpec:
    """What one machine of the run must offer. Holds paths of secrets, never a secret."""

    # What must be there
    repository: str
    paths: Mapping[str, str] = field(default_factory=dict[str, str])  # by the option that names it
    modules: tuple[str, ...] = ()  # dotted names
    search_path: tuple[str, ...] = ()  # PYTHONPATH of the job
    checkpoints: tuple[CheckpointSpec, ...] = ()
    reference: ReferenceSpec | None = None
    key_files: Mapping[str, str] = field(default_factory=dict[str, str])  # path by NAME_FILE

    # What is written
    writable: Mapping[str, str] = field(default_factory=dict[str, str])  # folder by option
    save_dir: str | None = None
    save_dir_resumes: bool = False  # the run goes on in it
    save_dir_tracker: str | None = None  # its text as the launching machine has read it; None where there is none
    save_bytes: int | None = None  # all checkpoints of the run; None where it cannot be told
    offload_dir: str | None = None
    offload_bytes: int = 0

    # What runs
    nodes: int = 1
    gpus: int = 0  # of one node
    gib_per_gpu: float = 0.0
    ports: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])  # first and last
    agent_server_url: str | None = None
    way_back: WayBackSpec | None = None
    wandb: bool = False

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> NodeSpec:
        raw: dict[str, Any] = json.loads(text)
        raw["modules"], raw["search_path"] = tuple(raw["modules"]), tuple(raw["search_path"])
        raw["checkpoints"] = tuple(CheckpointSpec(**checkpoint) for checkpoint in raw["checkpoints"])
        raw["reference"] = ReferenceSpec(**raw["reference"]) if raw["reference"] else None
        raw["way_back"] = WayBackSpec(**raw["way_back"]) if raw["way_back"] else None
        raw["ports"] = {service: (first, last) for service, (first, last) in raw["ports"].items()}
        return cls(**raw)


def check_node(
    spec: NodeSpec, head: bool, address: str = "127.0.0.1", environment: Mapping[str, str] = os.environ
) -> list[Finding]:
    """On the machine itself. `address` is how other nodes reach it; services run on the head unless Ray moves them."""
    looks: dict[str, Callable[[], Finding | list[Finding]]] = {
        "this repository": lambda: check_repository(Path(spec.repository)),
        "paths": lambda: check_paths({option: Path(path) for option, path in spec.paths.items()}),
        "packages": lambda: check_packages(spec.modules, [Path(path) for path in spec.search_path]),
        "ports and way back": lambda: _check_services(spec, head, address),
    }
    for option, folder in spec.writable.items():
        name = f"folder of {option}"
        looks[name] = lambda name=name, folder=folder, option=option: check_writable(name, Path(folder), option)
    for name, path in spec.key_files.items():
        looks[f"key file {name}"] = lambda name=name, path=path: check_key_file(name, Path(path))
    for given in spec.checkpoints:
        looks[f"checkpoint of {given.option}"] = lambda given=given: check_checkpoint(
            given.option, given.checkpoint, given.expected, given.model
        )
    if (reference := spec.reference) is not None:
        looks["reference"] = lambda: check_reference(
            Path(reference.folder), reference.will_prepare, reference.expected, reference.model
        )
    if (save_dir := spec.save_dir) is not None:
        looks["disk space"] = lambda: check_disk(Path(save_dir), spec.save_bytes)
        if head:
            looks[SAVE_DIR] = lambda: check_save_dir(Path(save_dir), spec.save_dir_resumes, spec.save_dir_tracker)
    if (offload_dir := spec.offload_dir) is not None:
        looks["train offload"] = lambda: check_offload(Path(offload_dir), spec.offload_bytes)
    if spec.gpus:
        looks["GPUs"] = lambda: check_gpus(spec.gpus, spec.gib_per_gpu)
    if spec.wandb:
        looks["W&B"] = lambda: check_wandb_key(environment)
    return run_checks([Check(name, look, _LIMIT) for name, look in looks.items()])


def soften(finding: Finding) -> Finding:
    """A failure where nothing of the run may ever come is worth a warning."""
    return replace(finding, status=Status.WARNING) if finding.status is Status.FAILURE else finding


def _check_services(spec: NodeSpec, head: bool, address: str) -> list[Finding]:
    """One after the other: the listeners of the way back would be busy ports to the check of these."""
    findings = check_ports(spec.ports, spec.agent_server_url) if spec.ports else []
    # The external host leads to one machine only: another one's listener is never reached by it.
    if spec.way_back is not None and (head or spec.way_back.external_host is None):
        findings += _check_way_back(spec.way_back, address)
    return findings if head else [soften(finding) for finding in findings]


def _check_way_back(spec: WayBackSpec, address: str) -> list[Finding]:
    try:
        headers = bearer({"AGENT_SERVER_TOKEN_FILE": spec.token_file or ""})
    except (OSError, ValueError) as error:
        return [warning(WAY_BACK, f"not tried: no token ({error})", "correct AGENT_SERVER_TOKEN_FILE")]
    return check_way_back(
        spec.bind_host,
        spec.external_host or os.environ.get("MILES_NODE_EXTERNAL_IP") or address,
        (spec.first_port, spec.last_port),
        spec.agent_server_url,
        headers,
    )

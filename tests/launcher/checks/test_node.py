from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.checks.node import CheckpointSpec, NodeSpec, ReferenceSpec, WayBackSpec, check_node
from launcher.preflight import Status
from tests.harbor_service.harbor_server_process import AgentServerProcess
from tests.launcher.checks.free_ports import free_span
from tests.launcher.checks.http_answers import http_answers
from tests.launcher.checks.nvidia_smi_stand_in import table, write_nvidia_smi

REPOSITORY = str(Path(__file__).parents[3])


def statuses(spec: NodeSpec, head: bool = True, environment: Mapping[str, str] | None = None) -> dict[str, Status]:
    return {finding.check: finding.status for finding in check_node(spec, head, environment=environment or {})}


@pytest.fixture
def spec(tmp_path: Path, agent_server: AgentServerProcess, monkeypatch: pytest.MonkeyPatch) -> NodeSpec:
    """Everything that can be asked for, on a machine that has it."""
    first = free_span(5)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"hidden_size": 2048}')
    (tmp_path / "model" / "model.safetensors").write_bytes(b"x")
    (tmp_path / "key").write_text("k")
    (tmp_path / "key").chmod(0o600)
    monkeypatch.setenv("PATH", f"{write_nvidia_smi(tmp_path / 'bin', table(8))}:/usr/bin:/bin")
    monkeypatch.setattr("launcher.checks.folders.file_system", lambda folder: "ext4")
    return NodeSpec(
        repository=REPOSITORY,
        paths={"--miles-path": str(tmp_path)},
        modules=("httpx",),
        search_path=(str(tmp_path),),
        checkpoints=(
            CheckpointSpec("--hf-checkpoint", str(tmp_path / "model"), "GLM-4.7-Flash", {"hidden_size": 2048}),
        ),
        reference=ReferenceSpec(str(tmp_path / "reference"), True, "GLM-4.7-Flash", {"hidden_size": 2048}),
        key_files={"DAYTONA_API_KEY_FILE": str(tmp_path / "key")},
        writable={"--save-dir": str(tmp_path / "save")},
        save_dir=str(tmp_path / "save"),
        save_bytes=1,
        offload_dir=str(tmp_path / "offload"),
        offload_bytes=1,
        gpus=8,
        gib_per_gpu=100.0,
        ports={"session servers": (first, first + 3), "router": (first + 4, first + 4)},
        agent_server_url=agent_server.url,
        way_back=WayBackSpec(first, first + 3, "127.0.0.1", "127.0.0.1", agent_server.url, None),
        wandb=True,
    )


def test_a_node_that_has_everything_passes_every_check(spec: NodeSpec) -> None:
    found = statuses(spec, environment={"WANDB_API_KEY": "canary"})
    assert set(found.values()) == {Status.OK}
    assert {"ports", "way back", "GPUs", "W&B", "train offload", "disk space", "reference", "packages"} <= set(found)


def test_a_node_that_lacks_everything_fails_every_check_of_what_it_lacks(spec: NodeSpec, tmp_path: Path) -> None:
    lacking = replace(
        spec,
        repository=str(tmp_path),
        paths={"--miles-path": str(tmp_path / "none")},
        modules=("not_there",),
        checkpoints=(CheckpointSpec("--hf-checkpoint", str(tmp_path / "none"), "GLM-4.7-Flash", {}),),
        reference=replace(spec.reference, will_prepare=False) if spec.reference else None,
        key_files={"DAYTONA_API_KEY_FILE": str(tmp_path / "none")},
        writable={"--save-dir": "/proc/none"},
        save_dir_tracker="39",
        save_bytes=2**60,
        offload_bytes=2**60,
        gpus=9,
    )
    with http_answers({}, port=spec.ports["router"][0]):
        found = statuses(lacking, environment={"NETRC": str(tmp_path / "none")})
    passed = [check for check, status in found.items() if status is Status.OK]
    assert passed == ["way back"]
    assert set(found.values()) == {Status.OK, Status.FAILURE}


def test_a_busy_port_fails_on_the_head_and_is_a_warning_on_another_node(spec: NodeSpec) -> None:
    with http_answers({}, port=spec.ports["router"][0]):
        assert statuses(spec)["ports"] is Status.FAILURE
        assert statuses(spec, head=False)["ports"] is Status.WARNING


def test_a_save_folder_that_differs_from_the_launching_machines_fails_on_the_head_alone(spec: NodeSpec) -> None:
    other = replace(spec, save_dir_resumes=True, save_dir_tracker="39")
    assert statuses(other)["save folder"] is Status.FAILURE
    assert "save folder" not in statuses(other, head=False)


def test_with_an_external_host_only_the_head_is_tried(spec: NodeSpec) -> None:
    assert "way back" not in statuses(spec, head=False)


def test_without_an_external_host_each_node_is_tried_at_its_own_address(spec: NodeSpec) -> None:
    assert spec.way_back is not None
    own = replace(spec, way_back=replace(spec.way_back, external_host=None))
    assert statuses(own, head=False)["way back"] is Status.OK
    unreachable = check_node(own, head=False, address="127.0.0.2", environment={})
    (finding, *_) = [finding for finding in unreachable if finding.check == "way back"]
    assert finding.status is Status.WARNING
    assert "127.0.0.2" in finding.sentence


def test_a_token_file_that_is_not_there_leaves_the_way_back_untried(spec: NodeSpec) -> None:
    assert spec.way_back is not None
    lost = replace(spec, way_back=replace(spec.way_back, token_file="/none"))
    assert statuses(lost)["way back"] is Status.WARNING


def test_a_spec_comes_back_from_json_as_it_was(spec: NodeSpec) -> None:
    assert NodeSpec.from_json(spec.to_json()) == spec
    assert NodeSpec.from_json(NodeSpec(REPOSITORY).to_json()) == NodeSpec(REPOSITORY)

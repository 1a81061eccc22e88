"""The checks as a real Ray job of a cluster of two nodes; its GPUs are a number and a stand-in for nvidia-smi."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster

from launcher.checks.node import NodeSpec
from launcher.checks.node_report import MARK, SPEC_VARIABLE, parse_findings
from launcher.checks.on_nodes import check_cluster, check_resources
from launcher.preflight import Finding, Status
from launcher.ray_jobs.cluster import Cluster as RunningCluster
from launcher.ray_jobs.job import JobSpec, job_output
from tests.launcher.checks.nvidia_smi_stand_in import table, write_nvidia_smi

REPOSITORY = str(Path(__file__).parents[3])
GPUS = 2


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = write_nvidia_smi(tmp_path_factory.mktemp("bin"), table(GPUS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        node: dict[str, Any] = {"num_cpus": 1, "num_gpus": GPUS, "object_store_memory": 100 * 2**20}
        cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
        cluster.add_node(**node)
        yield str(cluster.address)
        cluster.shutdown()


def findings_of(spec: NodeSpec, address: str) -> dict[str, Finding]:
    environment = {**os.environ, "RAY_ADDRESS": address, SPEC_VARIABLE: spec.to_json()}
    job = subprocess.run(
        [sys.executable, "-m", "launcher.checks.on_nodes"],
        cwd=REPOSITORY,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert job.returncode == 0, job.stdout
    assert sum(line.startswith(MARK) for line in job.stdout.splitlines()) == 1
    return {finding.check: finding for finding in parse_findings(job.stdout)}


def test_a_cluster_that_has_everything_passes_and_says_so_once(address: str, tmp_path: Path) -> None:
    spec = NodeSpec(REPOSITORY, paths={"--miles-path": str(tmp_path)}, nodes=2, gpus=GPUS, gib_per_gpu=100.0)
    found = findings_of(spec, address)
    assert {finding.status for finding in found.values()} == {Status.OK}
    assert found["Ray cluster"].sentence == "4 GPUs are free, 4 are wanted"
    assert found["paths"].sentence.startswith("2 nodes: ")
    assert found["GPUs"].sentence.startswith("2 nodes: 2 are there")


def test_what_nodes_lack_is_found_on_them(address: str, tmp_path: Path) -> None:
    spec = NodeSpec(REPOSITORY, paths={"--miles-path": str(tmp_path / "none")}, nodes=3, gpus=GPUS, gib_per_gpu=200.0)
    found = findings_of(replace(spec, wandb=True), address)
    assert found["Ray cluster"].status is Status.FAILURE
    assert "2 nodes have 2 GPUs, 3 are wanted" in found["Ray cluster"].sentence
    assert found["paths"].status is Status.FAILURE and "2 nodes (" in found["paths"].sentence
    assert found["GPUs"].status is Status.FAILURE
    assert "W&B" in found


def test_an_unlucky_node_among_more_than_are_wanted_is_a_warning(address: str) -> None:
    found = findings_of(NodeSpec(REPOSITORY, nodes=1, gpus=GPUS, gib_per_gpu=200.0), address)
    assert found["GPUs"].status is Status.WARNING


def test_a_node_that_does_not_answer_in_time_fails_instead_of_holding_the_launcher(address: str) -> None:
    ray.init(address, log_to_driver=False)
    try:
        findings = check_cluster(NodeSpec(REPOSITORY), limit=0.0)
    finally:
        ray.shutdown()
    silent = [finding.sentence for finding in findings if finding.status is Status.FAILURE]
    assert len(silent) == 1 and "no answer within 0 s" in silent[0]


def test_a_check_that_breaks_on_a_node_is_reported_with_its_cause(address: str) -> None:
    found = findings_of(NodeSpec(REPOSITORY, ports={"router": (70_000, 70_000)}), address)
    assert found["Ray cluster"].status is Status.FAILURE
    assert "the checks cannot run there" in found["Ray cluster"].sentence
    assert "OverflowError" in found["Ray cluster"].sentence


def test_the_checks_run_as_a_submitted_job(ray_cluster: RunningCluster) -> None:
    spec = NodeSpec(REPOSITORY, modules=("httpx",))
    environment = {"PYTHONPATH": REPOSITORY, SPEC_VARIABLE: spec.to_json()}
    entrypoint = (sys.executable, "-m", "launcher.checks.on_nodes")
    succeeded, log = job_output(
        ray_cluster, JobSpec(f"preflight-{os.getpid()}", entrypoint, environment, {}), timeout=120
    )
    assert succeeded, log
    assert {finding.check for finding in parse_findings(log)} == {"Ray cluster", "this repository", "paths", "packages"}


def node(gpus: float) -> dict[str, Any]:
    return {"NodeManagerAddress": "10.0.0.1", "Resources": {"GPU": gpus} if gpus else {}}


@pytest.mark.parametrize(
    ("gpus", "free", "expected", "words"),
    [
        ([8, 8], 16.0, Status.OK, "16 GPUs are free"),
        ([8, 8, 0], 16.0, Status.OK, "16 GPUs are free"),
        ([8, 8], 9.0, Status.FAILURE, "9 of its 16 GPUs are free, 16 are wanted (2 nodes x 8)"),
        ([8, 4, 4], 16.0, Status.FAILURE, "1 nodes have 8 GPUs, 2 are wanted"),
        ([], 0.0, Status.FAILURE, "0 nodes"),
    ],
)
def test_gpus_that_are_missing_or_taken_by_other_jobs_fail_with_the_numbers(
    gpus: list[float], free: float, expected: Status, words: str
) -> None:
    finding = check_resources([node(count) for count in gpus], {"GPU": free}, NodeSpec("/r", nodes=2, gpus=8))
    assert finding.status is expected
    assert words in finding.sentence

"""Ray job that runs the checks on every node of the cluster and prints what they found as one line.

Started as `python3 -m launcher.checks.on_nodes` with a `NodeSpec` as JSON in PREFLIGHT_SPEC. The node that this job
runs on is taken for the head: the session servers and the router come to it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from launcher.checks.node import NodeSpec, check_node, soften
from launcher.checks.node_report import SPEC_VARIABLE, merge, report_line
from launcher.daemon_call import in_daemon
from launcher.preflight import Finding, failure, ok

_ray: Any = ray  # typed in parts only

_CLUSTER = "Ray cluster"
_GPUS = "GPUs"
_LIMIT = 60.0  # seconds for all nodes together; a node that has to start a worker first takes several


def check_cluster(spec: NodeSpec, limit: float = _LIMIT) -> list[Finding]:
    """With Ray connected. On each node that is alive, side by side; `limit` in seconds."""
    nodes: list[dict[str, Any]] = [node for node in _ray.nodes() if node["Alive"]]
    resources = check_resources(nodes, _ray.available_resources(), spec)
    head = _ray.get_runtime_context().get_node_id()
    with_gpus = [node for node in nodes if _gpus(node) >= spec.gpus > 0]
    until = time.monotonic() + limit
    answers = [
        _start(spec if node in with_gpus else replace(spec, gpus=0), node, node["NodeID"] == head) for node in nodes
    ]
    by_node: list[tuple[str, list[Finding]]] = []
    for node, answer in zip(nodes, answers, strict=True):
        findings = _result(answer, max(0.0, until - time.monotonic())) or [_silent(limit)]
        if len(with_gpus) > spec.nodes:
            # Ray can place the run around a node that others use.
            findings = [soften(finding) if finding.check == _GPUS else finding for finding in findings]
        by_node.append((str(node["NodeManagerAddress"]), findings))
    return [resources, *merge(by_node)]


def check_resources(nodes: Sequence[Mapping[str, Any]], available: Mapping[str, float], spec: NodeSpec) -> Finding:
    """`nodes` as `ray.nodes()` lists them, `available` as `ray.available_resources()`."""
    if not spec.gpus:
        return ok(_CLUSTER, f"{len(nodes)} nodes are there")
    fitting = [node for node in nodes if _gpus(node) >= spec.gpus]
    wanted = spec.nodes * spec.gpus
    if len(fitting) < spec.nodes:
        there = ", ".join(f"{node['NodeManagerAddress']} {_gpus(node):g}" for node in nodes)
        return failure(
            _CLUSTER,
            f"{len(fitting)} nodes have {spec.gpus} GPUs, {spec.nodes} are wanted (GPUs by node: {there})",
            "join the missing nodes with `ray start --address`, or pass other --num-nodes and --num-gpus-per-node",
        )
    free = available.get("GPU", 0.0)
    if free < wanted:
        total = sum(_gpus(node) for node in nodes)
        return failure(
            _CLUSTER,
            f"{free:g} of its {total:g} GPUs are free, {wanted} are wanted ({spec.nodes} nodes x {spec.gpus})",
            "wait for the jobs that have them (`ray status`, `ray job list`), or take fewer",
        )
    return ok(_CLUSTER, f"{free:g} GPUs are free, {wanted} are wanted")


@_ray.remote(num_cpus=0, max_retries=0)
def _on_node(spec: str, address: str) -> list[Finding]:
    return check_node(NodeSpec.from_json(spec), False, address)


def _start(spec: NodeSpec, node: Mapping[str, Any], head: bool) -> Future[list[Finding]]:
    address = str(node["NodeManagerAddress"])
    if head:
        # In this process: a worker of its own would take seconds to start.
        return in_daemon(lambda: check_node(spec, True, address))
    there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    return _on_node.options(scheduling_strategy=there).remote(spec.to_json(), address).future()


def _result(answer: Future[list[Finding]], seconds: float) -> list[Finding] | None:
    """None where there is none in time."""
    wait([answer], seconds)
    if not answer.done():
        return None
    if (error := answer.exception()) is None:
        return answer.result()
    last = str(error).strip().splitlines()[-1:]
    return [
        failure(
            _CLUSTER,
            f"the checks cannot run there ({type(error).__name__}: {''.join(last)})",
            "put this repository at the same path on every node, with its Python packages",
        )
    ]


def _silent(limit: float) -> Finding:
    return failure(
        _CLUSTER, f"no answer within {limit:g} s", "see `ray status`, and take the node out if it does not come back"
    )


def _gpus(node: Mapping[str, Any]) -> float:
    return float(node["Resources"].get("GPU", 0.0))


def main() -> int:
    spec = NodeSpec.from_json(os.environ[SPEC_VARIABLE])
    # "auto" never starts a cluster of its own, as the default does where there is none.
    _ray.init("auto", log_to_driver=False)
    print(f"\n{report_line(check_cluster(spec))}", flush=True)
    _ray.shutdown()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Several real raylets on this machine; their GPUs are numbers that Ray keeps count of."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray.cluster_utils

from launcher.ray_jobs.on_nodes import too_little
from tests.launcher.ray_jobs.ray_cluster import REPOSITORY, eventually

NODES, GPUS = 2, 2
ON_NODES = (sys.executable, "-m", "launcher.ray_jobs.on_nodes")


@pytest.fixture(scope="module")
def nodes_address() -> Iterator[str]:
    folder = tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True)  # short: Unix sockets are in it
    with pytest.MonkeyPatch.context() as patch, folder as temp_dir:
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        options: dict[str, Any] = {"num_cpus": 2, "num_gpus": GPUS, "include_dashboard": False, "temp_dir": temp_dir}
        cluster: Any = ray.cluster_utils.Cluster(initialize_head=True, head_node_args=options)
        for _ in range(NODES - 1):
            cluster.add_node(num_cpus=2, num_gpus=GPUS)
        yield str(cluster.address)
        for node in cluster.list_all_nodes():
            cluster.remove_node(node, allow_graceful=False)


def environment(address: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**inherited, "RAY_ADDRESS": address}


def on_nodes(address: str, nodes: int, gpus: int, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*ON_NODES, "--nodes", str(nodes), "--gpus", str(gpus), "--", *command],
        env=environment(address),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_each_node_runs_the_command_once_with_its_rank_the_master_and_its_gpus(nodes_address: str) -> None:
    code = "import os, sys; print(*sys.argv[1:], os.environ['CUDA_VISIBLE_DEVICES']); print('größe')"
    ran = on_nodes(
        nodes_address, 2, 2, sys.executable, "-c", code, "--rank={node_rank}/{nnodes}", "{master_addr}", "{x}"
    )
    assert ran.returncode == 0, ran.stderr
    lines = [line.split() for line in ran.stdout.splitlines() if "--rank" in line]
    assert sorted((line[1], line[2]) for line in lines) == [("0]", "--rank=0/2"), ("1]", "--rank=1/2")]
    assert len({line[3] for line in lines}) == 1
    assert {line[4] for line in lines} == {"{x}"}
    assert {line[5] for line in lines} == {"0,1"}
    assert ran.stdout.count("größe") == 2


def test_one_node_that_fails_ends_the_others_and_is_named(nodes_address: str, tmp_path: Path) -> None:
    code = (
        "import os, sys, time, pathlib\n"
        "pathlib.Path(sys.argv[2], sys.argv[1]).write_text(str(os.getpid()))\n"
        "while len(list(pathlib.Path(sys.argv[2]).iterdir())) < 2: time.sleep(0.05)\n"
        "sys.exit(5) if sys.argv[1] == '1' else time.sleep(600)\n"
    )
    ran = on_nodes(nodes_address, 2, 0, sys.executable, "-c", code, "{node_rank}", str(tmp_path))
    assert ran.returncode == 5
    assert "node 1" in ran.stderr
    assert "exit code 5, the others are ended" in ran.stderr
    survivor = int((tmp_path / "0").read_text())
    eventually(lambda: not psutil.pid_exists(survivor), "the end of the command on node 0")


def test_a_job_that_is_stopped_ends_the_command_on_every_node(nodes_address: str, tmp_path: Path) -> None:
    code = "import os, sys, time, pathlib; pathlib.Path(sys.argv[1]).write_text(str(os.getpid())); time.sleep(600)"
    command = (sys.executable, "-c", code, str(tmp_path / "{node_rank}"))
    running = subprocess.Popen(
        [*ON_NODES, "--nodes", "2", "--gpus", "0", "--", *command], env=environment(nodes_address), cwd=REPOSITORY
    )
    eventually(lambda: len(list(tmp_path.iterdir())) == 2, "both commands")
    pids = [int(eventually(path.read_text, f"{path} written")) for path in tmp_path.iterdir()]
    running.terminate()  # as Ray does first
    assert running.wait(timeout=60) != 0
    eventually(lambda: not any(psutil.pid_exists(pid) for pid in pids), "the end of the commands")


def test_more_than_the_cluster_has_is_refused_at_once_with_the_numbers(nodes_address: str) -> None:
    ran = on_nodes(nodes_address, 3, 2, "true")
    assert ran.returncode == 1
    assert "3 nodes with 2 GPUs each are wanted, the cluster has 2 nodes, 2 of them with enough" in ran.stderr


@pytest.mark.parametrize(
    ("wanted", "gpus", "fits"), [(2, 8, True), (3, 8, False), (3, 4, True), (4, 0, False), (2, 9, False)]
)
def test_nodes_count_that_live_and_have_the_gpus(wanted: int, gpus: int, fits: bool) -> None:
    nodes = [
        {"Alive": True, "Resources": {"GPU": 8.0}},
        {"Alive": True, "Resources": {"GPU": 8.0}},
        {"Alive": True, "Resources": {"GPU": 4.0}},
        {"Alive": False, "Resources": {"GPU": 8.0}},
    ]
    assert (too_little(nodes, wanted, gpus) is None) == fits


@pytest.mark.long
def test_gpus_that_others_hold_are_waited_for_only_so_long(nodes_address: str) -> None:
    holder = "import os, subprocess, sys; sys.exit(subprocess.call(sys.argv[1:], env={**os.environ}))"
    inner = [*ON_NODES, "--nodes", "2", "--gpus", "1", "--wait", "1", "--", "true"]
    ran = on_nodes(nodes_address, 1, 2, sys.executable, "-c", holder, *inner)
    assert ran.returncode == 1
    assert "2 nodes with 1 GPUs each exist but were not free after 1 s" in ran.stdout


def test_a_command_that_does_not_exist_is_named(nodes_address: str) -> None:
    ran = on_nodes(nodes_address, 1, 0, "no-such-command")
    assert ran.returncode == 1
    assert "cannot start the command" in ran.stderr
    assert "no-such-command" in ran.stderr

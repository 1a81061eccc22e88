from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from launcher.checks.gpus import check_gpus
from launcher.preflight import Status
from tests.launcher.checks.nvidia_smi_stand_in import table, write_nvidia_smi


@pytest.fixture(autouse=True)
def only_the_stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


def test_free_gpus_pass(tmp_path: Path) -> None:
    write_nvidia_smi(tmp_path / "bin", table(8))
    finding = check_gpus(8, 100.0)
    assert finding.status is Status.OK
    assert "8 are there, at least 140.4 GiB free" in finding.sentence


def test_fewer_gpus_than_wanted_fail_with_both_numbers(tmp_path: Path) -> None:
    write_nvidia_smi(tmp_path / "bin", table(4))
    finding = check_gpus(8, 0.0)
    assert finding.status is Status.FAILURE
    assert "4 GPUs are there, 8 are wanted" in finding.sentence


def test_gpus_held_by_others_fail_with_pid_name_and_memory(tmp_path: Path) -> None:
    write_nvidia_smi(
        tmp_path / "bin",
        table(1) + "1, GPU-1, 143771, 102400\n",
        "GPU-1, 4711, 61440, sglang::scheduler, tp 0\nGPU-1, 4712, [N/A], python3\n",
    )
    finding = check_gpus(2, 100.0)
    assert finding.status is Status.FAILURE
    assert "1 of 2 GPUs have 100.0 GiB free (GiB free: GPU 1 40.4 of 140.4)" in finding.sentence
    assert "GPU 1 pid 4711 (sglang::scheduler, tp 0) 60.0 GiB" in finding.sentence
    assert "GPU 1 pid 4712 (python3) memory unknown" in finding.sentence


def test_other_processes_with_room_left_are_warned_about(tmp_path: Path) -> None:
    write_nvidia_smi(tmp_path / "bin", table(1, used=1024), "GPU-0, 4711, 1024, python3\n")
    finding = check_gpus(1, 100.0)
    assert finding.status is Status.WARNING
    assert "pid 4711" in finding.sentence


def test_gpus_too_small_for_the_plan_fail_without_blaming_anybody(tmp_path: Path) -> None:
    write_nvidia_smi(tmp_path / "bin", table(2, total=81920, used=0))
    finding = check_gpus(2, 100.0)
    assert finding.status is Status.FAILURE
    assert "held by" not in finding.sentence and "80.0 of 80.0" in finding.sentence


def test_a_machine_without_nvidia_smi_fails_with_the_count() -> None:
    finding = check_gpus(8, 0.0)
    assert finding.status is Status.FAILURE
    assert "8 GPUs are wanted" in finding.sentence


def test_processes_whose_names_look_like_a_run_of_ours_are_named_and_left_alone(tmp_path: Path) -> None:
    others = [
        subprocess.Popen(["sglang::scheduler", "60"], executable="/bin/sleep"),
        subprocess.Popen(["/bin/sh", "-c", "read line # train.py"], stdin=subprocess.PIPE),
    ]
    try:
        held = "".join(f"GPU-0, {process.pid}, 61440, {process.args[0]}\n" for process in others)  # type: ignore[index]
        write_nvidia_smi(tmp_path / "bin", table(1, used=122880), held)
        finding = check_gpus(1, 100.0)
        assert finding.status is Status.FAILURE
        for process in others:
            assert f"pid {process.pid} (" in finding.sentence and "60.0 GiB" in finding.sentence
            assert process.poll() is None
    finally:
        for process in others:
            process.kill()
            process.wait()


def test_a_driver_that_hangs_fails_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launcher.checks.gpus._TIMEOUT", 0.3)
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "nvidia-smi"
    program.write_text("#!/bin/sh\n# Stand-in of the tests.\nexec /bin/sleep 600\n")
    program.chmod(0o755)
    finding = check_gpus(8, 0.0)
    assert finding.status is Status.FAILURE
    assert "TimeoutExpired" in finding.sentence


@pytest.mark.parametrize("script", ["exit 9", "echo no devices were found"])
def test_a_driver_that_does_not_work_fails(tmp_path: Path, script: str) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n# Stand-in of the tests.\n{script}\n")
    program.chmod(0o755)
    finding = check_gpus(8, 0.0)
    assert finding.status is Status.FAILURE
    assert "does not answer" in finding.sentence

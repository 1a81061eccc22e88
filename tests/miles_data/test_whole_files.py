"""The output is whole at any moment, whatever happens to the process or the disk."""

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from disk.atomic_file import atomic_file
from tests.miles_data.rows_on_disk import GOOD, good, ids, write

PROGRAM = [sys.executable, "download_and_process_data.py"]


def temporary(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if ".tmp-" in path.name]


@pytest.mark.parametrize("append", [[], ["--append"]])
def test_a_kill_in_the_middle_leaves_the_old_file_and_the_next_run_cleans_up(append: list[str], tmp_path: Path) -> None:
    output, pipe = tmp_path / "out.jsonl", tmp_path / "pipe"
    write(output, {"prompt": "x", "metadata": {"instance_id": "old", "log": "x" * 3_000_000}})
    before = output.read_bytes()
    os.mkfifo(pipe)
    command = [*PROGRAM, "--input", str(pipe), "--output", str(output), *append]
    running = subprocess.Popen(command)
    with pipe.open("w") as file:
        # More than is written at a time, and no end: the conversion is in the middle for certain.
        for number in range(100):
            file.write(f'{{"instance_id": "{number}", "problem_statement": "{"x" * 100_000}"}}\n')
        file.flush()
        while not any(path.stat().st_size > len(before) * bool(append) for path in temporary(tmp_path)):
            assert running.poll() is None
            time.sleep(0.01)
        running.send_signal(signal.SIGKILL)
        assert running.wait() == -signal.SIGKILL
    assert output.read_bytes() == before
    assert len(temporary(tmp_path)) == 1
    source = write(tmp_path / "in.jsonl", GOOD)
    subprocess.run([*PROGRAM, "--input", str(source), "--output", str(output), *append], check=True)
    assert ids(output) == (["old", "a-1"] if append else ["a-1"])
    assert temporary(tmp_path) == []


def test_ctrl_c_stops_with_130_and_leaves_nothing(tmp_path: Path) -> None:
    output, pipe = tmp_path / "out.jsonl", tmp_path / "pipe"
    output.write_text("old\n")
    os.mkfifo(pipe)
    running = subprocess.Popen([*PROGRAM, "--input", str(pipe), "--output", str(output)], stderr=subprocess.PIPE)
    with pipe.open("w"):
        while not temporary(tmp_path):
            time.sleep(0.01)
        running.send_signal(signal.SIGINT)
        _, error = running.communicate()
    assert running.returncode == 130 and b"nothing was written" in error and b"Traceback" not in error
    assert output.read_text() == "old\n" and temporary(tmp_path) == []


@pytest.mark.parametrize("options", [[], ["--append"], ["--on-duplicate", "last"]])
def test_a_disk_that_fills_up_in_the_middle_leaves_the_old_file(options: list[str], tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", *(good(number, patch="x" * 100_000) for number in range(100)))
    output = write(tmp_path / "out.jsonl", {"prompt": "x", "metadata": {"instance_id": "old"}})
    before = output.read_bytes()

    def no_file_above_5_mb() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (5_000_000, 5_000_000))

    command = [*PROGRAM, "--input", str(source), "--output", str(output), *options]
    done = subprocess.run(command, preexec_fn=no_file_above_5_mb, capture_output=True, text=True)
    assert done.returncode == 2 and "File too large" in done.stderr and "Traceback" not in done.stderr
    assert output.read_bytes() == before and temporary(tmp_path) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_one_error(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", GOOD)
    (tmp_path / "folder").mkdir(mode=0o555)
    command = [*PROGRAM, "--input", str(source), "--output", str(tmp_path / "folder" / "out.jsonl")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "Permission denied" in done.stderr and "Traceback" not in done.stderr


def test_a_missing_output_folder_is_made_and_a_link_keeps_pointing_to_its_target(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", GOOD)
    target, link = tmp_path / "new" / "folder" / "out.jsonl", tmp_path / "link.jsonl"
    subprocess.run([*PROGRAM, "--input", str(source), "--output", str(target)], check=True)
    link.symlink_to(target)
    target.write_text("old\n")
    subprocess.run([*PROGRAM, "--input", str(source), "--output", str(link)], check=True)
    assert link.is_symlink() and ids(target) == ["a-1"]


def test_a_file_of_another_process_that_lives_is_not_cleaned_up(tmp_path: Path) -> None:
    with atomic_file(tmp_path / "other") as file:
        source = write(tmp_path / "in.jsonl", GOOD)
        subprocess.run([*PROGRAM, "--input", str(source), "--output", str(tmp_path / "out.jsonl")], check=True)
        file.write(b"whole")
    assert (tmp_path / "other").read_bytes() == b"whole"

from __future__ import annotations

import os
from pathlib import Path

import pytest

from launcher.checks.agent_server import check_agent_server
from launcher.checks.checkpoints import read_object
from launcher.checks.key_files import check_key_file
from launcher.checks.save_dir import tracker_text
from launcher.checks.wandb import check_wandb_key
from launcher.preflight import Status
from launcher.save_folder import TRACKER


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """Without a writer; whoever opened it for reading would wait for one."""
    path = tmp_path / TRACKER
    os.mkfifo(path)
    return path


def test_a_pipe_in_the_place_of_a_file_never_blocks(pipe: Path) -> None:
    finding = check_key_file("HF_TOKEN_FILE", pipe)
    assert finding.status is Status.FAILURE and "not a regular file" in finding.sentence
    (finding,) = check_agent_server("http://127.0.0.1:9", 1, 1, {"AGENT_SERVER_TOKEN_FILE": str(pipe)})
    assert finding.status is Status.FAILURE and "no token" in finding.sentence
    assert check_wandb_key({"NETRC": str(pipe)}).status is Status.FAILURE
    assert tracker_text(pipe.parent) is None
    with pytest.raises(OSError, match="not a regular file"):
        read_object(pipe)

"""What the end of a run leaves on disk."""

import os
import resource
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from local_engine.policy import Policy
from local_engine.run_files import RunFiles


@contextmanager
def full_disk() -> Generator[None]:
    """The limit on file sizes makes the kernel refuse a write in the middle of a file, as a full disk does."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_model_that_the_disk_refuses_is_said_and_leaves_what_was_there(
    make_policy: Callable[..., Policy], tokenizer: Any, tmp_path: Path
) -> None:
    files, policy = RunFiles(tmp_path, tmp_path / "traces", pytest.fail), make_policy()
    with full_disk():
        rows, written = files.model_rows(policy, tokenizer)
    assert not written
    assert "not written" in rows[0][1] and "--resume writes it" in rows[0][1] and "older" not in rows[0][1]
    assert os.listdir(tmp_path) == []

    assert files.model_rows(policy, tokenizer)[1]
    before = (tmp_path / "model" / "model.safetensors").read_bytes()
    with full_disk():
        rows, written = files.model_rows(policy, tokenizer)
    assert not written and "model is older: remove it" in rows[0][1]
    assert os.listdir(tmp_path) == ["model"]
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == before

"""The pages on a task, an agent and a model of one's own do what they print."""

import socket
from pathlib import Path

import pytest

from tests.docs.walkthrough import ROOT, make_ground, walk

PAGES = ("own-task.md", "own-agent.md", "own-model.md")


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@pytest.mark.parametrize("name", PAGES)
def test_the_commands_of_the_page_work_as_printed(name: str, tmp_path: Path) -> None:
    walk(ROOT / "docs" / name, make_ground(tmp_path / "ground"), replaced={"11000": free_port()})


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", PAGES)
def test_the_rehearsal_of_the_page_works_as_printed(name: str, tmp_path: Path) -> None:
    ground = make_ground(tmp_path / "ground")
    walk(ROOT / "docs" / name, ground, long=True, timeout=850, replaced={"11000": free_port()})

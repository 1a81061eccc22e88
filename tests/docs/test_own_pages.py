"""The pages on a task, an agent and a model of one's own do what they print."""

from pathlib import Path

import pytest

from tests.docs.walkthrough import ROOT, make_ground, walk
from tests.free_port import free_port

PAGES = ("own-task.md", "own-agent.md", "own-model.md")


@pytest.mark.parametrize("name", PAGES)
def test_the_commands_of_the_page_work_as_printed(name: str, tmp_path: Path) -> None:
    walk(ROOT / "docs" / name, make_ground(tmp_path / "ground"), replaced={"11000": str(free_port())})


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", PAGES)
def test_the_rehearsal_of_the_page_works_as_printed(name: str, tmp_path: Path) -> None:
    ground = make_ground(tmp_path / "ground")
    walk(ROOT / "docs" / name, ground, long=True, timeout=850, replaced={"11000": str(free_port())})

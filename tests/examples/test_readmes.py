"""The recipes' commands work as printed; the long test trains one rollout instead of all."""

from pathlib import Path

import pytest

from tests.docs.walkthrough import ROOT, make_ground, walk

RECIPES = ("log_fields", "python_repair")
SHORT = {f"--num-rollout {n}": "--num-rollout 1" for n in (20, 22)} | {
    f"--split test --count {n}": "--split test --count 1" for n in (3, 6)
}


@pytest.mark.parametrize("name", RECIPES)
def test_the_tasks_are_made_as_printed(name: str, tmp_path: Path) -> None:
    walk(ROOT / "examples" / name / "README.md", make_ground(tmp_path / "ground"), replaced=SHORT)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", RECIPES)
def test_the_recipe_trains_as_printed(name: str, tmp_path: Path) -> None:
    page, ground = ROOT / "examples" / name / "README.md", make_ground(tmp_path / "ground")
    walk(page, ground, long=True, timeout=850, replaced=SHORT)
    (run,) = (ground / "runs").iterdir()
    assert (run / "model" / "model.safetensors").is_file()

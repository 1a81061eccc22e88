"""docs/flags.md shows the options that there are."""

from launcher.cli import fields_of, flag, groups_of
from launcher.flag_table import page
from launcher.scripts import ROOT, SCRIPTS, load_script

LAUNCHERS = [load_script(script).LAUNCHER for script in SCRIPTS]


def test_the_page_is_the_one_that_the_option_dataclasses_make() -> None:
    written = (ROOT / "docs" / "flags.md").read_text()
    assert written == page(LAUNCHERS), "run: python -m launcher.flag_table > docs/flags.md"


def test_every_option_of_every_launcher_has_a_row() -> None:
    shown = page(LAUNCHERS)
    options = {
        name for launcher in LAUNCHERS for _, group in groups_of(launcher.options) for name, _, _ in fields_of(group)
    }
    assert options
    assert not [name for name in options if f"| `{flag(name)}`" not in shown]
